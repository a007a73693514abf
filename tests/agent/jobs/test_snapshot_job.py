"""Snapshot jobs: done twice, out of order, with sources that are gone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rla_agent.jobs.job_source import release
from rla_agent.jobs.outcome import JobOutcome
from rla_agent.jobs.snapshot_job import run_snapshot
from rla_client.contract.job.arena_layout import SLOT_BUSY, SLOT_FREE
from rla_client.contract.job.job_source import ArenaSource, BlobSource
from rla_client.contract.job.snapshot_footer import encode_footer, saved_order
from rla_client.contract.job.snapshot_job import SnapshotJob
from rla_client.stream.arena import Arena, create_arena


class Desk:
    """A stream's folders and one arena, filled by hand."""

    def __init__(self, root: Path) -> None:
        self.blobs = root / "spool" / "stream" / "blobs"
        self.folder = root / "snapshots"
        self.blobs.mkdir(parents=True)
        self.folder.mkdir()
        made = create_arena(self.blobs.parent, 1 << 16)
        assert made is not None
        self.arena: Arena = made

    def content(self, order: int) -> bytes:
        return b"pickle %d" % order + encode_footer({"token": f"{order:016x}", "order": order})

    def in_slot(self, order: int, *names: str, slot: int = 0) -> SnapshotJob:
        content = self.content(order)
        self.arena.mark(slot, SLOT_BUSY, order)
        ctypes.memmove(self.arena.slot_address(slot), content, len(content))
        source = ArenaSource(self.arena.name, slot, order, len(content), ())
        return SnapshotJob(f"{order:016x}", order, "log", names, source)

    def in_blob(self, order: int, *names: str) -> SnapshotJob:
        content = self.content(order)
        (self.blobs / f"{order}.pkl").write_bytes(content)
        return SnapshotJob(f"{order:016x}", order, "log", names, BlobSource(f"{order}.pkl", len(content)))

    def run(self, job: SnapshotJob) -> JobOutcome:
        return run_snapshot(job, self.blobs, self.folder).outcome

    def orders(self) -> dict[str, int]:
        return {name: saved_order(self.folder / name)[1] for name in sorted(os.listdir(self.folder))}


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.arena.close(unlink=True)


@pytest.mark.parametrize("way", ["in_slot", "in_blob"])
def test_done_once_and_a_replay_changes_nothing(desk: Desk, way: str) -> None:
    job = getattr(desk, way)(5, "itr_5.pkl", "params.pkl")
    assert desk.run(job) is JobOutcome.WRITTEN
    assert desk.orders() == {"itr_5.pkl": 5, "params.pkl": 5}
    inode = (desk.folder / "params.pkl").stat().st_ino
    assert desk.run(job) is JobOutcome.ALREADY
    release(job, desk.blobs)
    release(job, desk.blobs)
    assert desk.run(job) is JobOutcome.ALREADY
    assert (desk.folder / "params.pkl").stat().st_ino == inode
    assert desk.arena.header(0)[0] == SLOT_FREE
    assert not os.listdir(desk.blobs)


def test_a_kill_between_the_names_is_made_up_for(desk: Desk) -> None:
    job = desk.in_slot(5, "itr_5.pkl", "params.pkl")
    (desk.folder / "itr_5.pkl").write_bytes(desk.content(5))
    for name in (f".rla-tmp-{job.token}", f".rla-tmp-{job.token}-2"):
        (desk.folder / name).write_bytes(b"torn")
    assert desk.run(job) is JobOutcome.WRITTEN
    assert desk.orders() == {"itr_5.pkl": 5, "params.pkl": 5}


def test_an_earlier_snapshot_never_replaces_a_later_one(desk: Desk) -> None:
    assert desk.run(desk.in_slot(7, "params.pkl")) is JobOutcome.WRITTEN
    assert desk.run(desk.in_slot(5, "params.pkl", slot=1)) is JobOutcome.SUPERSEDED
    assert desk.run(desk.in_blob(6, "itr_6.pkl", "params.pkl")) is JobOutcome.WRITTEN
    assert desk.orders() == {"itr_6.pkl": 6, "params.pkl": 7}


def test_sources_that_are_gone_are_lost_and_foreign_ones_refused(desk: Desk) -> None:
    blob = desk.in_blob(5, "params.pkl")
    (desk.blobs / "5.pkl").write_bytes(desk.content(5)[:-3])
    assert desk.run(blob) is JobOutcome.LOST
    (desk.blobs / "5.pkl").unlink()
    assert desk.run(blob) is JobOutcome.LOST
    (desk.blobs / "5.pkl").symlink_to("/etc/passwd")
    assert desk.run(blob) is JobOutcome.LOST
    slot = desk.in_slot(6, "params.pkl")
    desk.arena.mark(0, SLOT_BUSY, 8)
    assert desk.run(slot) is JobOutcome.LOST
    assert desk.arena.header(0) == (SLOT_BUSY, 8)
    large = desk.in_slot(9, "params.pkl")
    source: Any = ArenaSource(desk.arena.name, 0, 9, 1 << 40, ())
    assert desk.run(SnapshotJob(large.token, 9, "log", large.names, source)) is JobOutcome.REFUSED
    assert desk.orders() == {}
