"""Checkpoint files, also of writers that are killed: one whole file or none, and which ones may go."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from rla_agent.jobs.checkpoint_job import retain
from rla_agent.jobs.job_source import release
from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.checkpoint.checkpoint_retention import Retention, Saved, superseded
from rla_client.contract.checkpoint.dropped_note import dropped
from rla_client.contract.checkpoint.stamp import STAMP_RECORD, Stamp, read_stamp
from rla_client.contract.checkpoint.torch_zip import TorchZip
from rla_client.contract.job.arena_layout import ALIGNMENT, SLOT_BUSY, SLOT_FREE
from rla_client.contract.job.checkpoint_job import CheckpointJob
from rla_client.contract.job.job_source import BlobSource, RawBlobSource, storage_offsets


def test_the_file_is_a_stored_aligned_zip_and_the_same_each_time(desk: Any) -> None:
    storages = [b"a" * 100, b"", b"b" * 64, os.urandom(70_000)]
    job = desk.job(*storages)
    assert desk.run(job).outcome is JobOutcome.WRITTEN
    path = desk.folder / "checkpoint_1.pt"
    first = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.read("archive/data.pkl") == desk.skeleton
        assert archive.read("archive/version") == b"3\n"
        assert [archive.read(f"archive/data/{key}") for key in range(4)] == storages
        for info in archive.infolist():
            assert info.compress_type == zipfile.ZIP_STORED
            name, extra = first[info.header_offset + 26 : info.header_offset + 30 : 2], 0
            name_bytes = int.from_bytes(first[info.header_offset + 26 : info.header_offset + 28], "little")
            extra = int.from_bytes(first[info.header_offset + 28 : info.header_offset + 30], "little")
            assert (info.header_offset + 30 + name_bytes + extra) % ALIGNMENT == 0, name
    path.unlink()
    assert desk.run(job).outcome is JobOutcome.WRITTEN
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


def test_replays_at_any_point_end_in_the_same_place(desk: Any) -> None:
    job = desk.job(b"x" * 1000)
    assert desk.run(job).outcome is JobOutcome.WRITTEN
    assert desk.run(job).outcome is JobOutcome.ALREADY  # killed before the release
    release(job, desk.blobs)
    assert desk.arena.header(0) == (SLOT_FREE, desk.number)
    assert desk.run(job).outcome is JobOutcome.ALREADY  # killed after it
    newer = desk.job(b"y" * 1000, step=2)
    release(job, desk.blobs)
    assert desk.arena.header(0) == (SLOT_BUSY, desk.number)  # not the old job's to free
    assert desk.run(newer).outcome is JobOutcome.WRITTEN
    dropped_at = (desk.folder / "checkpoint_1.pt").stat().st_mtime_ns
    assert retain(newer, desk.folder) == ["checkpoint_1.pt"]
    assert dropped(desk.folder) == {"checkpoint_1.pt": dropped_at}  # so that a master may drop it, too
    assert desk.run(job).outcome is JobOutcome.SUPERSEDED
    assert desk.names() == ["checkpoint_2.pt"]


def test_an_older_save_never_takes_the_name_of_a_newer_one(desk: Any) -> None:
    older = desk.job(b"old", slot=0)
    newer = desk.job(b"new", slot=1)
    assert desk.run(newer).outcome is JobOutcome.WRITTEN
    assert desk.run(older).outcome is JobOutcome.SUPERSEDED
    with zipfile.ZipFile(desk.folder / "checkpoint_1.pt") as archive:
        assert archive.read("archive/data/0") == b"new"


WORKER = """
import sys, msgpack
from pathlib import Path
from rla_agent.jobs.checkpoint_job import retain, run_checkpoint
from rla_agent.jobs.job_source import release
from rla_client.contract.job.checkpoint_job import CheckpointJob
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


def start_worker(desk: Any, jobs: list[CheckpointJob]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, desk.blobs, desk.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(msgpack.packb([job.encode() for job in jobs]))
    worker.stdin.close()
    assert worker.stdout.readline() == b"ready\n"
    return worker


def kill_and_replay(desk: Any, repeats: int, *, raw: bool = False) -> int:
    """Kill the writer at random moments, look at the folder, let another one finish."""
    rng = random.Random(11)
    killed_in_the_middle = 0
    storages = [rng.randbytes(3 << 20), rng.randbytes(4 << 20)]
    for repeat in range(repeats):
        steps = (2 * repeat, 2 * repeat + 1)
        if raw:
            jobs = [desk.raw_blob(*storages, step=step, name=f"{step}.raw") for step in steps]
        else:
            jobs = [desk.job(*storages, step=step, slot=slot) for slot, step in enumerate(steps)]
        worker = start_worker(desk, jobs)
        end = time.perf_counter() + rng.random() * 0.05 * (repeat % 3 > 0)  # each third one at once
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
        assert list(desk.blobs.iterdir()) == []
    return killed_in_the_middle


def check_whole(path: Path, storages: list[bytes]) -> None:
    assert read_stamp(path) is not None
    with zipfile.ZipFile(path) as archive:
        assert [archive.read(f"archive/data/{key}") for key in range(2)] == storages


@pytest.mark.slow
@pytest.mark.parametrize("raw", [False, True])
def test_a_writer_killed_at_random_leaves_whole_files(make_desk: Callable[..., Any], raw: bool) -> None:
    assert kill_and_replay(make_desk(8 << 20), 15, raw=raw) >= 1


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_writer_killed_a_thousand_times(make_desk: Callable[..., Any]) -> None:
    assert kill_and_replay(make_desk(8 << 20), 1000) > 300


@pytest.mark.root
def test_a_full_disk_raises_and_leaves_the_job_to_be_tried_again(desk: Any) -> None:
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
        assert desk.run(job).outcome is JobOutcome.WRITTEN
    finally:
        subprocess.run(["umount", desk.folder], check=True)


def blob_of(desk: Any, job: CheckpointJob, name: str) -> CheckpointJob:
    """A file as the client leaves it in the spool."""
    with open(desk.blobs / name, "wb") as file:
        stamp = job.stamp.encode()
        with TorchZip(file) as zipped:
            zipped.add(STAMP_RECORD, len(stamp), [stamp])
    return replace(job, source=BlobSource(name, (desk.blobs / name).stat().st_size))


def test_blobs_move_once_and_torn_ones_do_not(desk: Any) -> None:
    job = blob_of(desk, desk.job(), "one.pt")
    whole = (desk.blobs / "one.pt").read_bytes()
    (desk.blobs / "one.pt").write_bytes(whole[:-1])
    assert desk.run(job).outcome is JobOutcome.LOST
    (desk.blobs / "one.pt").write_bytes(bytes(len(whole)))  # what a power cut may leave
    assert desk.run(job).outcome is JobOutcome.LOST
    (desk.blobs / "one.pt").write_bytes(whole)
    assert desk.run(job).outcome is JobOutcome.WRITTEN
    release(job, desk.blobs)
    assert list(desk.blobs.iterdir()) == []
    assert desk.run(job).outcome is JobOutcome.ALREADY
    assert (desk.folder / "checkpoint_1.pt").read_bytes() == whole


def test_a_blob_of_raw_bytes_becomes_what_a_slot_would(desk: Any) -> None:
    job = desk.job(b"abc", b"", b"x" * 100_000)
    assert desk.run(job).outcome is JobOutcome.WRITTEN
    expected = (desk.folder / "checkpoint_1.pt").read_bytes()
    (desk.folder / "checkpoint_1.pt").unlink()
    slot = job.source
    _, needed = storage_offsets(slot.skeleton_bytes, slot.sizes)
    blob = desk.blobs / "one.raw"
    whole = bytes(ctypes.string_at(desk.arena.slot_address(0), needed)) + job.stamp.token.encode()
    raw = RawBlobSource(blob.name, len(whole), slot.skeleton_bytes, slot.sizes)
    job = CheckpointJob.decode(replace(job, source=raw).encode())
    for wrong in (whole[:-1], whole[:-16] + bytes(16), bytes(len(whole))):
        blob.write_bytes(wrong)
        assert desk.run(job).outcome is JobOutcome.LOST
    blob.write_bytes(whole)
    assert desk.run(replace(job, source=replace(raw, sizes=(3, 0, 90_000)))).outcome is JobOutcome.REFUSED
    assert desk.run(job).outcome is JobOutcome.WRITTEN
    assert (desk.folder / "checkpoint_1.pt").read_bytes() == expected
    release(job, desk.blobs)
    assert list(desk.blobs.iterdir()) == []


@pytest.mark.root
def test_blobs_cross_file_systems(desk: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", desk.folder], check=True)
    try:
        job = blob_of(desk, desk.job(), "one.pt")
        assert desk.run(job).outcome is JobOutcome.WRITTEN
        assert read_stamp(desk.folder / "checkpoint_1.pt") == job.stamp
    finally:
        subprocess.run(["umount", desk.folder], check=True)


def test_retention_leaves_files_of_others(desk: Any) -> None:
    (desk.folder / "checkpoint_0.pt").write_bytes(b"the user's own")
    other = desk.job(step=3)
    forked = replace(other, stamp=replace(other.stamp, run="another run"))
    assert desk.run(forked).outcome is JobOutcome.WRITTEN
    for step in (1, 2):
        job = desk.job(step=step)
        assert desk.run(job).outcome is JobOutcome.WRITTEN
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
