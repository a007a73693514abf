"""A desk at which checkpoint jobs are made and done."""

from __future__ import annotations

import ctypes
import pickle
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla_agent.jobs.checkpoint_job import run_checkpoint
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.stamp import Stamp
from rla_client.contract.job.arena_layout import SLOT_BUSY
from rla_client.contract.job.checkpoint_job import CheckpointJob
from rla_client.contract.job.job_source import ArenaSource, RawBlobSource, storage_offsets
from rla_client.contract.layout import DROPPED_NOTE
from rla_client.stream.arena import Arena, create_arena


class Desk:
    """A stream's folders and one arena, filled by hand."""

    skeleton = pickle.dumps({"not": "looked at"}, 2)

    def __init__(self, root: Path, slot_bytes: int) -> None:
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
        offsets, _ = storage_offsets(len(self.skeleton), sizes)
        base = self.arena.slot_address(slot)
        for offset, data in zip([0, *offsets], [self.skeleton, *storages], strict=True):
            ctypes.memmove(base + offset, data, len(data))
        stamp = Stamp(secrets.token_hex(8), time.time_ns(), "run", "checkpoint", step, {})
        source = ArenaSource(self.arena.name, slot, self.number, len(self.skeleton), sizes)
        return CheckpointJob(stamp, replace(source, **changes), Retention(max_to_keep=1))

    def raw_blob(
        self, *storages: bytes, step: int = 1, name: str = "one.raw", skeleton: bytes = skeleton
    ) -> CheckpointJob:
        """Write bytes into a blob and name them."""
        sizes = tuple(map(len, storages))
        offsets, needed = storage_offsets(len(skeleton), sizes)
        stamp = Stamp(secrets.token_hex(8), time.time_ns(), "run", "checkpoint", step, {})
        memory = bytearray(needed)
        for offset, data in zip([0, *offsets], [skeleton, *storages], strict=True):
            memory[offset : offset + len(data)] = data
        blob = self.blobs / name
        blob.write_bytes(memory + stamp.token.encode())
        source = RawBlobSource(blob.name, blob.stat().st_size, len(skeleton), sizes)
        return CheckpointJob(stamp, source, Retention(max_to_keep=1))

    def run(self, job: CheckpointJob) -> Any:
        return run_checkpoint(job, self.blobs, self.folder / job.final_name)

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.folder.iterdir() if entry.name != DROPPED_NOTE)


@pytest.fixture
def make_desk(tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """`make_desk(slot_bytes)`, once a test."""
    made: list[Desk] = []

    def make(slot_bytes: int = 1 << 20) -> Desk:
        made.append(Desk(tmp_path, slot_bytes))
        return made[-1]

    yield make
    for one in made:
        one.arena.close(unlink=True)


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    """One with small slots."""
    return make_desk()
