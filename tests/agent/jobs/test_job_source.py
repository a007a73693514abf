"""Jobs of checkpoints that lie or whose source vanished: nothing is written, nothing else is reached."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from rla_agent.jobs.outcome import JobOutcome
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.job.arena_layout import ARENA_FOLDER, SLOT_BUSY, SLOT_FREE
from rla_client.contract.job.checkpoint_job import CheckpointJob
from rla_client.contract.job.job_source import ArenaSource, BlobSource, RawBlobSource
from rla_client.contract.spool.protocol import pack, unpack
from rla_client.stream.arena import create_arena


def test_bytes_that_are_gone_are_reported_and_nothing_is_written(desk: Any) -> None:
    job = desk.job(b"x" * 1000)
    desk.arena.mark(0, SLOT_BUSY, 99)
    assert desk.run(job).outcome is JobOutcome.LOST
    desk.arena.mark(0, SLOT_FREE, desk.number)
    assert desk.run(job).outcome is JobOutcome.LOST
    desk.arena.mark(0, SLOT_BUSY, desk.number)
    os.truncate(os.path.join(ARENA_FOLDER, desk.arena.name), 4200)  # a mapping would be SIGBUS
    assert desk.run(job).outcome is JobOutcome.LOST
    os.unlink(os.path.join(ARENA_FOLDER, desk.arena.name))
    assert desk.run(job).outcome is JobOutcome.LOST
    assert desk.names() == []
    desk.folder.rmdir()
    assert desk.run(job).outcome is JobOutcome.REMOVED
    assert not desk.folder.exists()


def test_jobs_cannot_reach_what_is_not_their_own(desk: Any, tmp_path: Path) -> None:
    job = desk.job(b"x" * 1000)
    source = job.source
    assert isinstance(source, ArenaSource)
    other = create_arena(tmp_path / "spool" / "other-stream", 1 << 20)
    assert other is not None
    other.mark(0, SLOT_BUSY, source.number)
    lies = [
        replace(source, arena=other.name),
        replace(source, sizes=(1 << 40,)),
        replace(source, skeleton_bytes=1 << 30),
    ]
    for lie in lies:
        assert desk.run(replace(job, source=lie)).outcome is JobOutcome.REFUSED
    path = Path(ARENA_FOLDER, desk.arena.name)
    path.chmod(0o644)
    assert desk.run(job).outcome is JobOutcome.REFUSED
    path.unlink()
    path.symlink_to(tmp_path / "secret")
    assert desk.run(job).outcome is JobOutcome.LOST
    path.unlink()
    (desk.blobs / "link").symlink_to("/etc/passwd")
    blob = replace(job, source=BlobSource("link", os.stat("/etc/passwd").st_size))
    assert desk.run(blob).outcome is JobOutcome.LOST
    os.mkfifo(desk.blobs / "pipe")
    assert desk.run(replace(job, source=BlobSource("pipe", 0))).outcome is JobOutcome.REFUSED
    assert desk.names() == []
    other.close(unlink=True)


def test_raw_blobs_that_lie_or_are_something_else(desk: Any, tmp_path: Path) -> None:
    job = desk.raw_blob(b"x" * 1000, b"y")
    source = job.source
    assert isinstance(source, RawBlobSource)
    lies = [
        replace(source, sizes=(1000, 1 << 40)),
        replace(source, sizes=(1000,)),
        replace(source, sizes=(1000, 1, *[0] * 1000, 1)),
        replace(source, sizes=((1 << 63) - 1,) * 3),
        replace(source, skeleton_bytes=1 << 30),
        replace(source, skeleton_bytes=0, sizes=()),
    ]
    for lie in lies:
        assert desk.run(replace(job, source=lie)).outcome is JobOutcome.REFUSED
    assert desk.run(replace(job, source=replace(source, size=source.size - 64))).outcome is JobOutcome.LOST
    assert desk.run(replace(job, source=BlobSource(source.blob, source.size))).outcome is JobOutcome.LOST
    one = desk.blobs / source.blob
    whole = tmp_path / "elsewhere"
    one.rename(whole)
    one.symlink_to(whole)
    assert desk.run(job).outcome is JobOutcome.LOST
    one.unlink()
    os.mkfifo(one)
    assert desk.run(job).outcome is JobOutcome.REFUSED
    one.unlink()
    one.mkdir()
    assert desk.run(job).outcome is JobOutcome.REFUSED
    one.rmdir()
    if os.geteuid() == 0:  # only root can give files away
        os.link(whole, one)
        os.chown(whole, 12345, -1)
        assert desk.run(job).outcome is JobOutcome.REFUSED
    assert desk.names() == []


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
        {"blob": "x", "size": 1, "sizes": [-1]}, {"blob": "x", "size": 1, "sizes": None},
        {"blob": "x", "size": 1, "skeleton_bytes": 1 << 40}, {"blob": "x", "size": 1, "sizes": [0] * 500_001},
    ],
)  # fmt: skip
def test_malformed_jobs_are_refused_before_anything_is_done(desk: Any, change: dict[str, Any]) -> None:
    fields = desk.job(b"x").encode()
    assert CheckpointJob.decode(fields).encode() == fields
    with pytest.raises(RemoteProtocolError):
        CheckpointJob.decode({**fields, **change})


@pytest.mark.parametrize("raw", [False, True])
def test_random_jobs_never_raise_anything_else(desk: Any, raw: bool) -> None:
    rng = random.Random(7)
    packed = pack((desk.raw_blob if raw else desk.job)(b"x" * 100, b"y").encode())
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


@pytest.mark.parametrize("raw", [False, True])
def test_evil_pickles_stay_bytes(desk: Any, tmp_path: Path, raw: bool) -> None:
    """In a process whose audit hook ends it at the first unpickling."""
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    if raw:
        job = desk.raw_blob(skeleton=evil)
    else:
        job = desk.job()
        job = replace(job, source=replace(job.source, skeleton_bytes=len(evil)))
        ctypes.memmove(desk.arena.slot_address(0), evil, len(evil))
    packed = msgpack.packb(job.encode())
    code = (
        "import os, sys, msgpack; from pathlib import Path\n"
        "from rla_agent.jobs.checkpoint_job import run_checkpoint\n"
        "from rla_client.contract.job.checkpoint_job import CheckpointJob\n"
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
