"""What tests of the checkpoint saver share: contents, and the agent's part, done on demand."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla_agent.jobs.checkpoint_job import retain, run_checkpoint  # noqa: E402
from rla_agent.jobs.job_source import release  # noqa: E402
from rla_agent.jobs.outcome import JobResult  # noqa: E402
from rla_agent.jobs.shm_cleanup import sweep_arenas  # noqa: E402
from rla_client.contract.agent.places import Places  # noqa: E402
from rla_client.contract.job.arena_layout import ARENA_FOLDER, spool_key  # noqa: E402  # noqa: E402
from rla_client.contract.job.checkpoint_job import CHECKPOINT_KIND, CheckpointJob  # noqa: E402  # noqa: E402
from rla_client.contract.spool.protocol import FrameKind, iter_frames, unpack  # noqa: E402
from rla_client.contract.spool.segments import segment_numbers, segment_path, stream_names  # noqa: E402


def content(step: int) -> dict[str, Any]:
    """The same as in TRAINER."""
    generator = torch.Generator().manual_seed(step)
    return {"step": step, "w": [torch.rand(50_000, generator=generator) for _ in range(4)]}


def assert_is(loaded: Any, step: int) -> None:
    wanted = content(step)
    assert loaded["step"] == step
    assert all(torch.equal(one, two) for one, two in zip(loaded["w"], wanted["w"], strict=True))


def jobs_of(places: Places) -> list[tuple[CheckpointJob, Path]]:
    """Every checkpoint job in a spool with its stream's blob folder, oldest first."""
    found = []
    for stream in stream_names(places.spool):
        folder = places.spool / stream
        for number in segment_numbers(folder):
            for frame in iter_frames(segment_path(folder, number).read_bytes()):
                if frame.kind == FrameKind.JOB:
                    kind, fields = unpack(frame.payload)
                    assert kind == CHECKPOINT_KIND
                    found.append((CheckpointJob.decode(fields), folder / "blobs"))
    return found


def work(places: Places, folder: Path) -> list[JobResult]:
    """What the agent does with each job, from the first one on."""
    results = []
    for job, blobs in jobs_of(places):
        result = run_checkpoint(job, blobs, folder / job.final_name)
        release(job, blobs)
        if result.durable:
            retain(job, folder)
        results.append(result)
    return results


def arenas_of(places: Places) -> list[str]:
    key = spool_key(places.spool)
    return [name for name in os.listdir(ARENA_FOLDER) if f"-{key}-" in name]


def swept(places: Places, live: list[str]) -> list[str]:
    """What a sweep takes of this test's; it may also take what other tests left behind."""
    before = arenas_of(places)
    taken = sweep_arenas(places.spool, lambda _: live)
    return [name for name in before if name in taken]


@contextlib.contextmanager
def lock_held(places: Places) -> Iterator[None]:
    """The agent's lock, so that clients see one alive; its work is done by `work`."""
    descriptor = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    try:
        yield
    finally:
        os.close(descriptor)
