"""One stream: positions, damage, segments."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.lone import LoneStream, Side

import rla_client.stream.segment_writer as spool_module
from rla_agent.model.records import Position
from rla_agent.model.run_states import RunState
from rla_agent.pipeline.quarantine import holds_nothing
from rla_agent.pipeline.run_liveness import follow
from rla_agent.pipeline.run_registry import new_run_record
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.pipeline.stream import Stream
from rla_client.contract.errors import SpoolError
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import segment_path


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def test_an_output_that_lags_catches_up_by_itself(lone: LoneStream) -> None:
    with Side(lone) as side:
        output = side.stream.outputs[0]
        output.fail(OSError(28, "No space left on device"))
        for number in range(10):
            lone.row({"v": number})
        side.read(2)
        assert side.stream.lagging == [output]
        side.read_all()
        assert side.stream.lagging == []
    assert (lone.root / "progress.csv").read_text().count("\n") == 11


def test_segments_are_freed_only_when_all_outputs_are_durable_past_them(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    with Side(lone) as side:
        for _ in range(40):
            lone.row({"v": 1})
        output = side.stream.outputs[0]
        output.fail(OSError(28, "No space left on device"))
        side.read(50)
        side.commit()
        assert segment_path(lone.writer.folder, 1).exists()
        side.read_all()
        assert segment_path(lone.writer.folder, 1).exists()
        side.commit()
        assert not segment_path(lone.writer.folder, 1).exists()


def test_opening_is_found_behind_damage_and_in_a_later_segment(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    for _ in range(10):
        lone.row({"v": 1})
    first = segment_path(lone.writer.folder, 1)
    first.write_bytes(b"\xf5R\x01garbage" * 10)
    opening, number = read_opening(lone.writer.folder)
    assert (opening.run, number) == ("r", 1)


def test_no_opening_at_all_is_an_error(lone: LoneStream) -> None:
    os.truncate(segment_path(lone.writer.folder, 1), 0)
    with pytest.raises(SpoolError):
        read_opening(lone.writer.folder)


def test_only_what_a_power_cut_left_of_a_first_frame_counts_as_nothing(lone: LoneStream) -> None:
    for _ in range(10):
        lone.row({"v": 1})
    lone.writer.close()
    path = segment_path(lone.writer.folder, 1)
    whole = path.read_bytes()
    assert not holds_nothing(lone.writer.folder)
    for nothing in (b"", bytes(4096), whole[:40], whole[:40] + bytes(4000)):
        path.write_bytes(nothing)
        assert holds_nothing(lone.writer.folder), nothing
    damaged = bytearray(whole)
    at = whole.find(b"\xf5R")
    while at >= 0:  # no frame's checksum is right any more, and yet a human may want these bytes
        damaged[at + 8] ^= 1
        damaged[at + 12] ^= 1
        at = whole.find(b"\xf5R", at + 1)
    path.write_bytes(damaged)
    assert not holds_nothing(lone.writer.folder)


def test_a_run_is_killed_only_once_its_last_word_could_have_been_read(lone: LoneStream) -> None:
    for _ in range(10):
        lone.row({"v": 1})
    with Side(lone) as side:
        side.stream.writer_left()
        record = new_run_record(side.stream)
        assert follow(side.stream, record, 2.0, 1800.0).state is RunState.RUNNING
        close = encode_frame(FrameKind.CLOSE, pack(["finished", "", 3.0]))
        lone.writer.append(close, 0)
        side.read_all()
        assert follow(side.stream, record, 4.0, 1800.0).state is RunState.FINISHED
        side.stream.closed = None
        assert follow(side.stream, record, 4.0, 1800.0).state is RunState.KILLED


def test_what_is_new_is_drained_once(lone: LoneStream) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        lone.row({"v": 2})
        lone.writer.append(encode_frame(FrameKind.MARK, pack(["replicate_now", {}])), 0)
        lone.writer.append(encode_frame(FrameKind.MARK, pack(["lost", {"rows": 3, "others": 1}])), 0)
        side.read_all()
        assert not side.stream.take_replicate_now(), "its run's record does not know of it yet"
        new = side.stream.drain_new()
        assert (new.rows, new.last and new.last.step) == (2, 1)
        assert (new.lost_rows, new.lost_others, new.replicate_now) == (3, 1, True)
        again = side.stream.drain_new()
        assert (again.rows, again.last, again.lost_rows, again.replicate_now) == (0, None, 0, False)
        assert [side.stream.take_replicate_now() for _ in range(2)] == [True, False]


def test_a_restored_stream_stands_where_the_commit_was(lone: LoneStream) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        row = side.stream.control_row()
        lone.row({"v": 2})
        lone.writer.append(encode_frame(FrameKind.FILE, pack(["log", "x", b""])), 0)
        lone.writer.append(encode_frame(FrameKind.JOB, pack(["kind", {}])), 0)
        lone.writer.append(encode_frame(FrameKind.CLOSE, pack(["finished", "", 3.0])), 0)
        side.read_all()
        assert (side.stream.rows, len(side.stream.new_jobs), len(side.stream.new_files)) == (2, 1, 1)
        fresh = Stream(lone.writer.name, lone.writer.folder)
        for stream in (fresh, side.stream):
            stream.restore(row)
            assert (stream.rows, stream.position, stream.durable) == (1, row.position, row.position)
            assert not stream.drain_new().rows
            assert (len(stream.new_jobs), len(stream.new_files)) == (0, 0)
            assert stream.control_row() == row
        side.stream.renew_outputs()
        side.stream.begin_at(row.position)


@pytest.mark.parametrize(
    "wrong", [{"rows": "x"}, {"bases": {"x": 1}}, {"closed": ["finished"]}, {"lost": 3}, {"lost": None}]
)
def test_a_row_that_makes_no_sense_is_refused(lone: LoneStream, wrong: dict[str, Any]) -> None:
    stream = Stream(lone.writer.name, lone.writer.folder)
    row = stream.control_row()
    with pytest.raises((ValueError, TypeError, LookupError)):
        stream.restore(replace(row, state={**row.state, **wrong}))


def test_a_state_that_cannot_be_is_noticed(lone: LoneStream) -> None:
    """What the end of each test here asks for can fail."""
    stream = Stream(lone.writer.name, lone.writer.folder)
    stream.validate()
    for name, wrong in (("parked", "why"), ("bases", {2: {}}), ("outputs", []), ("durable", Position(2, 0))):
        right = getattr(stream, name)
        setattr(stream, name, wrong)
        with pytest.raises(AssertionError):
            stream.validate()
        setattr(stream, name, right)
    stream.validate()
