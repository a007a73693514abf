"""Jobs that lie, sources that vanish, writers that are killed: one whole file or none."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import secrets
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from rla_agent.sinks.checkpoint import Outcome, release, retain, run_checkpoint
from rla_agent.sinks.torch_zip import TorchZip
from rla_client.arena import Arena, create_arena
from rla_client.checkpoint_job import (
    ALIGNMENT,
    ARENA_FOLDER,
    SLOT_BUSY,
    SLOT_FREE,
    STAMP_RECORD,
    ArenaSource,
    BlobSource,
    CheckpointJob,
    Retention,
    Stamp,
    storage_offsets,
)
from rla_client.checkpoint_retention import Saved, read_stamp, superseded
from rla_client.errors import RemoteProtocolError
from rla_client.protocol import pack, unpack

SKELETON = pickle.dumps({"not": "looked at"}, 2)


class Desk:
    """A stream's folders and one arena, filled by hand."""

    def __init__(self, root: Path, slot_bytes: int = 1 << 20) -> None:
        self.blobs = root / "spool" / "stream" / "blobs"
        self.folder = root / "checkpoint"
        self.blobs.mkdir(parents=True)
        self.folder.mkdir()
        made = create_arena(self.blobs.parent, slot_bytes)
        assert made is not None
        self.arena: Arena = made
        self.number = 0

    def job(self, *storages: bytes, step: int = 1, slot: int = 0, **changes: Any) -> CheckpointJob:
        """Put bytes into a slot and name them."""
        self.number += 1
        self.arena.mark(slot, SLOT_BUSY, self.number)
        sizes = tuple(map(len, storages))
        offsets, _ = storage_offsets(len(SKELETON), sizes)
        base = self.arena.slot_address(slot)
        for offset, data in zip([0, *offsets], [SKELETON, *storages], strict=True):
            ctypes.memmove(base + offset, data, len(data))
        stamp = Stamp(secrets.token_hex(8), time.time_ns(), "run", "checkpoint", step, {})
        source = ArenaSource(self.arena.name, slot, self.number, len(SKELETON), sizes)
        return CheckpointJob(stamp, replace(source, **changes), Retention(max_to_keep=1))

    def run(self, job: CheckpointJob) -> Any:
        return run_checkpoint(job, self.blobs, self.folder / job.final_name)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.folder.iterdir())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.arena.close(unlink=True)


def test_the_file_is_a_stored_aligned_zip_and_the_same_each_time(desk: Desk) -> None:
    storages = [b"a" * 100, b"", b"b" * 64, os.urandom(70_000)]
    job = desk.job(*storages)
    assert desk.run(job).outcome is Outcome.WRITTEN
    path = desk.folder / "checkpoint_1.pt"
    first = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("archive/data.pkl") == SKELETON
        assert archive.read("archive/version") == b"3\n"
        assert [archive.read(f"archive/data/{key}") for key in range(4)] == storages
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            name, extra = first[info.header_offset + 26 : info.header_offset + 30 : 2], 0
            name_bytes = int.from_bytes(first[info.header_offset + 26 : info.header_offset + 28], "little")
            extra = int.from_bytes(first[info.header_offset + 28 : info.header_offset + 30], "little")
            assert (info.header_offset + 30 + name_bytes + extra) % ALIGNMENT == 0, name
    path.unlink()
    assert desk.run(job).outcome is Outcome.WRITTEN
    assert path.read_bytes() == first


def test_records_past_two_gigabytes_have_64_bit_headers(tmp_path: Path) -> None:
    class Sparse:
        """Counts and seeks instead of writing zeros."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: Any) -> int:
            if len(data) >= 1 << 20:
                return self.file.seek(len(data), os.SEEK_CUR) and len(data)
            return int(self.file.write(data))

    piece = bytes(64 << 20)
    with open(tmp_path / "big.pt", "w+b") as file, TorchZip(Sparse(file)) as zipped:  # type: ignore[arg-type]
        zipped.add("data/0", 33 * len(piece), (piece for _ in range(33)))
        zipped.add("data/1", 3, [b"end"])
    with zipfile.ZipFile(tmp_path / "big.pt") as archive:
        assert archive.getinfo("archive/data/0").file_size == 33 * len(piece)
        assert archive.read("archive/data/1") == b"end"


def test_replays_at_any_point_end_in_the_same_place(desk: Desk) -> None:
    job = desk.job(b"x" * 1000)
    assert desk.run(job).outcome is Outcome.WRITTEN
    assert desk.run(job).outcome is Outcome.ALREADY  # killed before the release
    release(job, desk.blobs)
    assert desk.arena.header(0) == (SLOT_FREE, desk.number)
    assert desk.run(job).outcome is Outcome.ALREADY  # killed after it
    newer = desk.job(b"y" * 1000, step=2)
    release(job, desk.blobs)
    assert desk.arena.header(0) == (SLOT_BUSY, desk.number)  # not the old job's to free
    assert desk.run(newer).outcome is Outcome.WRITTEN
    assert retain(newer, desk.folder) == ["checkpoint_1.pt"]
    assert desk.run(job).outcome is Outcome.SUPERSEDED
    assert desk.names() == ["checkpoint_2.pt"]


def test_an_older_save_never_takes_the_name_of_a_newer_one(desk: Desk) -> None:
    older = desk.job(b"old", slot=0)
    newer = desk.job(b"new", slot=1)
    assert desk.run(newer).outcome is Outcome.WRITTEN
    assert desk.run(older).outcome is Outcome.SUPERSEDED
    with zipfile.ZipFile(desk.folder / "checkpoint_1.pt") as archive:
        assert archive.read("archive/data/0") == b"new"


def test_bytes_that_are_gone_are_reported_and_nothing_is_written(desk: Desk) -> None:
    job = desk.job(b"x" * 1000)
    desk.arena.mark(0, SLOT_BUSY, 99)
    assert desk.run(job).outcome is Outcome.LOST
    desk.arena.mark(0, SLOT_FREE, desk.number)
    assert desk.run(job).outcome is Outcome.LOST
    desk.arena.mark(0, SLOT_BUSY, desk.number)
    os.truncate(os.path.join(ARENA_FOLDER, desk.arena.name), 4200)  # a mapping would be SIGBUS
    assert desk.run(job).outcome is Outcome.LOST
    os.unlink(os.path.join(ARENA_FOLDER, desk.arena.name))
    assert desk.run(job).outcome is Outcome.LOST
    assert desk.names() == []
    desk.folder.rmdir()
    assert desk.run(job).outcome is Outcome.REMOVED
    assert not desk.folder.exists()


def test_jobs_cannot_reach_what_is_not_their_own(desk: Desk, tmp_path: Path) -> None:
    job = desk.job(b"x" * 1000)
    source = job.source
    assert isinstance(source, ArenaSource)
    other = create_arena(tmp_path / "spool" / "other-stream", 1 << 20)
    assert other is not None
    other.mark(0, SLOT_BUSY, source.number)
    lies = [
        replace(source, arena=other.name),
        replace(source, slot=8),
        replace(source, sizes=(1 << 40,)),
        replace(source, skeleton_bytes=1 << 30),
    ]
    for lie in lies:
        assert desk.run(replace(job, source=lie)).outcome is Outcome.REFUSED
    path = Path(ARENA_FOLDER, desk.arena.name)
    path.chmod(0o644)
    assert desk.run(job).outcome is Outcome.REFUSED
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    assert desk.run(job).outcome is Outcome.LOST
    path.unlink()
    (desk.blobs / "link").symlink_to("/etc/passwd")
    blob = replace(job, source=BlobSource("link", os.stat("/etc/passwd").st_size))
    assert desk.run(blob).outcome is Outcome.LOST
    os.mkfifo(desk.blobs / "pipe")
    assert desk.run(replace(job, source=BlobSource("pipe", 0))).outcome is Outcome.REFUSED
    assert desk.names() == []
    other.close(unlink=True)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2}, {"name": "../x"}, {"name": "a/b"}, {"name": ""}, {"name": 5}, {"name": "n\0"},
        {"name": "x" * 5000}, {"token": "../../../../etc/"}, {"token": None},
        {"time_step": 1.5}, {"time_step": True}, {"time_step": 1 << 70},
        {"arena": "../etc/passwd"}, {"arena": "rla-arena-0-../x"}, {"slot": -1}, {"slot": 9}, {"sizes": [-1]},
        {"sizes": "x"}, {"sizes": [1.5]}, {"skeleton_bytes": -1}, {"max_to_keep": 0}, {"max_to_keep": "1"},
        {"keep_best": ["loss", "up", 1]}, {"keep_best": 5}, {"keep_every": -2}, {"metrics": {"a": "b"}},
        {"metrics": []}, {"byteorder": "middle"}, {"order": None}, {"run": 3}, {"blob": "../x", "size": 1},
        {"blob": ".seg", "size": 1}, {"blob": "x", "size": -1},
    ],
)  # fmt: skip
def test_malformed_jobs_are_refused_before_anything_is_done(desk: Desk, change: dict[str, Any]) -> None:
    fields = desk.job(b"x").encode()
    assert CheckpointJob.decode(fields).encode() == fields
    with pytest.raises(RemoteProtocolError):
        CheckpointJob.decode({**fields, **change})


def test_random_jobs_never_raise_anything_else(desk: Desk) -> None:
    rng = random.Random(7)
    packed = pack(desk.job(b"x" * 100, b"y").encode())
    for _ in range(2000):
        data = bytearray(packed)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            job = CheckpointJob.decode(unpack(bytes(data)))
        except RemoteProtocolError:
            continue
        final = desk.folder / job.final_name
        assert final.parent == desk.folder
        desk.run(job)
    assert all(name.endswith(".pt") for name in desk.names())


def test_evil_pickles_stay_bytes(desk: Desk, tmp_path: Path) -> None:
    """In a process whose audit hook ends it at the first unpickling."""
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    job = desk.job()
    source = replace(job.source, skeleton_bytes=len(evil))  # type: ignore[type-var]
    ctypes.memmove(desk.arena.slot_address(0), evil, len(evil))
    packed = msgpack.packb(replace(job, source=source).encode())
    code = (
        "import os, sys, msgpack; from pathlib import Path\n"
        "from rla_agent.sinks.checkpoint import run_checkpoint\n"
        "from rla_client.checkpoint_job import CheckpointJob\n"
        "sys.addaudithook(lambda event, _: os._exit(9) if event == 'pickle.find_class' else None)\n"
        "job = CheckpointJob.decode(msgpack.unpackb(sys.stdin.buffer.read()))\n"
        "print(run_checkpoint(job, Path(sys.argv[1]), Path(sys.argv[2], job.final_name)).outcome.value)\n"
        "assert 'torch' not in sys.modules and 'pickle' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, desk.blobs, desk.folder], input=packed, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"written\n"), done.stderr
    with zipfile.ZipFile(desk.folder / "checkpoint_1.pt") as archive:
        assert archive.read("archive/data.pkl") == evil
    assert not (tmp_path / "ran").exists()


WORKER = """
import sys, msgpack
from pathlib import Path
from rla_agent.sinks.checkpoint import release, retain, run_checkpoint
from rla_client.checkpoint_job import CheckpointJob
blobs, folder = map(Path, sys.argv[1:])
jobs = [CheckpointJob.decode(fields) for fields in msgpack.unpackb(sys.stdin.buffer.read())]
print("ready", flush=True)
for job in jobs:
    result = run_checkpoint(job, blobs, folder / job.final_name)
    print(result.outcome.value, flush=True)
    release(job, blobs)
    if result.durable:
        retain(job, folder)
"""


def start_worker(desk: Desk, jobs: list[CheckpointJob]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, desk.blobs, desk.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(msgpack.packb([job.encode() for job in jobs]))
    worker.stdin.close()
    assert worker.stdout.readline() == b"ready\n"
    return worker


def kill_and_replay(root: Path, repeats: int) -> int:
    """Kill the writer at random moments, look at the folder, let another one finish."""
    rng = random.Random(11)
    killed_in_the_middle = 0
    desk = Desk(root, slot_bytes=8 << 20)
    storages = [rng.randbytes(3 << 20), rng.randbytes(4 << 20)]
    for repeat in range(repeats):
        jobs = [
            desk.job(*storages, step=2 * repeat, slot=0),
            desk.job(*storages, step=2 * repeat + 1, slot=1),
        ]
        worker = start_worker(desk, jobs)
        end = time.perf_counter() + rng.random() * 0.05
        while time.perf_counter() < end:
            pass
        worker.kill()
        worker.wait()
        assert worker.stdout is not None
        done = worker.stdout.read().split()
        worker.stdout.close()
        killed_in_the_middle += len(done) < 2
        for path in desk.folder.glob("*.pt"):
            check_whole(path, storages)
        worker = start_worker(desk, jobs)
        assert worker.wait() == 0
        assert worker.stdout is not None
        assert set(worker.stdout.read().split()) <= {b"written", b"already", b"superseded"}
        worker.stdout.close()
        assert desk.names() == [f"checkpoint_{2 * repeat + 1}.pt"]
        check_whole(desk.folder / desk.names()[0], storages)
        assert desk.arena.idle
    desk.arena.close(unlink=True)
    return killed_in_the_middle


def check_whole(path: Path, storages: list[bytes]) -> None:
    assert read_stamp(path) is not None
    with zipfile.ZipFile(path) as archive:
        assert [archive.read(f"archive/data/{key}") for key in range(2)] == storages


def test_a_writer_killed_at_random_leaves_whole_files(tmp_path: Path) -> None:
    assert kill_and_replay(tmp_path, 15) > 3


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_writer_killed_a_thousand_times(tmp_path: Path) -> None:
    assert kill_and_replay(tmp_path, 1000) > 300


@pytest.mark.root
def test_a_full_disk_raises_and_leaves_the_job_to_be_tried_again(desk: Desk) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", desk.folder], check=True)
    try:
        ballast = desk.folder / "ballast"
        ballast.write_bytes(bytes((2 << 20) - 100_000))
        job = desk.job(os.urandom(500_000))
        with pytest.raises(OSError, match="No space"):
            desk.run(job)
        assert desk.names() == ["ballast"]
        ballast.unlink()
        assert desk.run(job).outcome is Outcome.WRITTEN
    finally:
        subprocess.run(["umount", desk.folder], check=True)


def blob_of(desk: Desk, job: CheckpointJob, name: str) -> CheckpointJob:
    """A file as the client leaves it in the spool."""
    with open(desk.blobs / name, "wb") as file:
        stamp = job.stamp.encode()
        with TorchZip(file) as zipped:
            zipped.add(STAMP_RECORD, len(stamp), [stamp])
    return replace(job, source=BlobSource(name, (desk.blobs / name).stat().st_size))


def test_blobs_move_once_and_torn_ones_do_not(desk: Desk) -> None:
    job = blob_of(desk, desk.job(), "one.pt")
    whole = (desk.blobs / "one.pt").read_bytes()
    (desk.blobs / "one.pt").write_bytes(whole[:-1])
    assert desk.run(job).outcome is Outcome.LOST
    (desk.blobs / "one.pt").write_bytes(bytes(len(whole)))  # what a power cut may leave
    assert desk.run(job).outcome is Outcome.LOST
    (desk.blobs / "one.pt").write_bytes(whole)
    assert desk.run(job).outcome is Outcome.WRITTEN
    release(job, desk.blobs)
    assert list(desk.blobs.iterdir()) == []
    assert desk.run(job).outcome is Outcome.ALREADY
    assert (desk.folder / "checkpoint_1.pt").read_bytes() == whole


@pytest.mark.root
def test_blobs_cross_file_systems(desk: Desk) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", desk.folder], check=True)
    try:
        job = blob_of(desk, desk.job(), "one.pt")
        assert desk.run(job).outcome is Outcome.WRITTEN
        assert read_stamp(desk.folder / "checkpoint_1.pt") == job.stamp
    finally:
        subprocess.run(["umount", desk.folder], check=True)


def test_retention_leaves_files_of_others(desk: Desk) -> None:
    (desk.folder / "checkpoint_0.pt").write_bytes(b"the user's own")
    other = desk.job(step=3)
    forked = replace(other, stamp=replace(other.stamp, run="another run"))
    assert desk.run(forked).outcome is Outcome.WRITTEN
    for step in (1, 2):
        job = desk.job(step=step)
        assert desk.run(job).outcome is Outcome.WRITTEN
        retain(job, desk.folder)
    assert desk.names() == ["checkpoint_0.pt", "checkpoint_2.pt", "checkpoint_3.pt"]


def saved(*rows: tuple[int, float]) -> list[Saved]:
    return [
        Saved(f"c_{step}.pt", Stamp("0" * 16, order, "r", "c", step, {"loss": loss}))
        for order, (step, loss) in enumerate(rows)
    ]


def test_what_may_go() -> None:
    files = saved((1, 5.0), (2, float("nan")), (3, 1.0), (4, 2.0), (0, 9.0))

    def gone(keep: Retention) -> list[int]:
        return [entry.stamp.time_step for entry in superseded(files, keep)]

    assert gone(Retention()) == []
    assert gone(Retention(keep_every=100)) == []
    assert gone(Retention(max_to_keep=1)) == [1, 2, 3, 4]  # the newest save, not the highest step
    assert gone(Retention(max_to_keep=9)) == []
    assert gone(Retention(1, keep_best=("loss", "min", 2))) == [1, 2]
    assert gone(Retention(1, keep_best=("loss", "max", 2))) == [2, 3, 4]
    assert gone(Retention(1, keep_best=("reward", "max", 2))) == [1, 2, 3, 4]
    assert gone(Retention(1, keep_every=3)) == [1, 2, 4]
