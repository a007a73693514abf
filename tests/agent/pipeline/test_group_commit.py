"""Group commit: nothing is stored that is not synced, and a failed sync is gone back behind."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from support.lone import LoneStream, Side

from rla_agent.model.stream_states import OutputState
from rla_agent.outputs.output_file import Output
from rla_agent.store.agent_db import CommitChanges


def csv_of(side: Side) -> Output:
    return next(output for output in side.stream.outputs if output.name == "csv")


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def failing_sync(monkeypatch: pytest.MonkeyPatch, path: str, failures: int) -> list[int]:
    """fdatasync of one path fails so often; returns the list of descriptors synced."""
    real, left, synced = os.fdatasync, [failures], list[int]()

    def fdatasync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == path:
            synced.append(descriptor)
            if left[0]:
                left[0] -= 1
                raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return synced


def test_after_a_failed_sync_the_rows_are_written_to_another_file(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        side.commit()
        lone.row({"v": 2})
        side.read_all()
        output = csv_of(side)
        inode = os.stat(output.path).st_ino
        failing_sync(monkeypatch, output.path, 1)
        side.commit()
        stored = side.database.outputs_of(side.stream.name)["csv"]
        assert stored.size == len(b"seq,time-step,timestamp,v\n0,0,0.0,1\n")
        assert os.stat(output.path).st_ino != inode
        side.read_all()
        side.commit()
        assert csv_of(side).durable == side.stream.position
    assert (lone.root / "progress.csv").read_text().count("\n") == 3


def test_while_the_rebuild_fails_too_nothing_is_stored(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        output = csv_of(side)
        synced = failing_sync(monkeypatch, output.path, 1)
        real = os.fsync

        def refused(_descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as context:
            context.setattr(os, "fsync", refused)
            side.commit()
            side.commit()
        assert (output.state, output.blocked) == (OutputState.SUSPECT, True)
        assert len(synced) == 1, "a failed descriptor was synced again"
        assert "csv" not in side.database.outputs_of(side.stream.name)
        assert real is os.fsync
        side.commit()
        assert output.state.name == "SUSPECT", "tried again at once, and at every commit from then on"
        assert output.may_retry(float("inf"))
        side.commit()
        assert output.state is not OutputState.SUSPECT
        side.read_all()
        side.commit()
        assert output.durable == side.stream.position


def test_a_full_state_disk_keeps_everything_dirty(lone: LoneStream, monkeypatch: pytest.MonkeyPatch) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()

        def full(_changes: CommitChanges) -> None:
            raise sqlite3.OperationalError("database or disk is full")

        with monkeypatch.context() as context:
            context.setattr(side.database, "commit", full)
            assert not side.commit()
        assert "agent.db" in side.faults
        assert side.stream.all_durable == (0, 0)
        assert side.commit()
        assert side.faults == {}
        assert side.stream.all_durable == side.stream.position


def test_a_write_error_does_not_make_unsynced_bytes_durable(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        output = csv_of(side)
        output.fail(OSError(28, "No space left on device"))
        synced = failing_sync(monkeypatch, output.path, 0)
        side.commit()
        assert synced, "bytes written before the error were stored without a sync"
        assert output.durable == output.position


def test_many_outputs_are_synced_with_few_descriptors(tmp_path: Path) -> None:
    sides = []
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        lone = LoneStream(tmp_path / str(number))
        lone.row({"v": number})
        sides.append((lone, Side(lone, open_files=3)))
    first = sides[0][1]
    streams = []
    for _, side in sides:
        side.read_all()
        streams.append(side.stream)
        side.files.close_all()
    assert first.committer.commit_streams(streams, CommitChanges(), first.faults)
    for (lone, side), stream in zip(sides, streams, strict=True):
        assert stream.all_durable == stream.position, lone.root
        side.drop()
        assert (lone.root / "progress.csv").read_text().count("\n") == 2


def test_an_item_file_that_is_not_kept_holds_the_position_back(lone: LoneStream) -> None:
    from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack

    with Side(lone) as side:
        lone.writer.append(encode_frame(FrameKind.FILE, pack(["log", "parameter.json", b"{}"])), 0)
        side.read(3)
        assert side.stream.new_files
        side.commit()
        assert side.stream.durable == (0, 0)
        side.stream.new_files.clear()
        side.commit()
        assert side.stream.durable == side.stream.position
