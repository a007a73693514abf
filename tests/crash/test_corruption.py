"""Damaged segments: the agent starts, what is before the damage survives, what is after is found again."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from crash.oracle import Trainer
from crash.workload import row_of

from rla_agent.control import ask_status
from rla_agent.ingest import Row, parse
from rla_client.places import Places
from rla_client.protocol import FrameKind, encode_frame, iter_frames, pack
from rla_client.spool import segment_path, stream_names

ROWS = 200
TAIL_BYTES = 3000
FLIPS = 1500


def segment() -> tuple[bytes, list[int]]:
    """Frames of ROWS rows, and the offset after each."""
    data, ends = b"", []
    for seq in range(ROWS):
        data += encode_frame(FrameKind.ROW, pack([seq, float(seq), row_of(0, seq)]))
        ends.append(len(data))
    return data, ends


def steps(data: bytes, *, final: bool) -> list[float]:
    """Rows that are taken in, reading on as long as something is consumed."""
    batch = parse(data, 1, 0, final=final)
    assert batch.end <= len(data)
    assert batch.damaged <= batch.end
    return [record.content.step for record in batch.records if isinstance(record.content, Row)]


@pytest.mark.parametrize("final", [True, False])
def test_cut_at_every_byte(final: bool) -> None:
    data, ends = segment()
    for cut in range(len(data) - TAIL_BYTES, len(data)):
        whole = sum(end <= cut for end in ends)
        assert steps(data[:cut], final=final) == list(range(whole))
        batch = parse(data[:cut], 1, 0, final=final)
        last = ends[whole - 1]
        assert (batch.end, batch.damaged) == ((cut, cut - last) if final else (last, 0))


def test_each_flipped_bit_costs_the_frame_it_hits() -> None:
    data, ends = segment()
    chance = random.Random(4)
    begins = [0, *ends[:-1]]
    for _ in range(FLIPS):
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        broken = bytearray(data)
        broken[at] ^= 1 << bit
        hit = next(index for index, end in enumerate(ends) if at < end)
        found = steps(bytes(broken), final=True)
        assert found == [seq for seq in range(ROWS) if seq != hit], f"bit {bit} of byte {at}"
        batch = parse(bytes(broken), 1, 0, final=True)
        assert batch.damaged == ends[hit] - begins[hit]


def test_a_live_segment_waits_only_for_what_may_come() -> None:
    data, ends = segment()
    for cut in range(ends[-2] + 1, ends[-1]):
        first = parse(data[:cut], 1, 0, final=False)
        assert first.end == ends[-2]
        rest = parse(data[first.end :], 1, first.end, final=False)
        assert [record.end for record in rest.records] == [ends[-1]]


def test_garbage_between_frames_is_counted_and_passed_over() -> None:
    data, ends = segment()
    chance = random.Random(7)
    for _ in range(200):
        cut = chance.choice(ends[:-1])
        garbage = chance.randbytes(chance.randrange(1, 400))
        if chance.random() < 0.3:
            garbage += data[:5]  # the begin of a frame
        batch = parse(data[:cut] + garbage + data[cut:], 1, 0, final=True)
        assert len(batch.records) == ROWS
        assert batch.damaged == len(garbage)


CASES = ("cut", "flip", "zeros", "opening", "empty", "garbage-segment")


@pytest.mark.parametrize("case", CASES)
def test_agent_takes_in_a_damaged_spool(
    case: str,
    places: Places,
    bare_agent: BareAgent,
    trainer: Callable[..., Trainer],
    wait_until: Callable[..., object],
) -> None:
    one = trainer("run", "--rows", "800", "--segment-bytes", "16384", "--sinks", "csv")
    one.ended()
    name = stream_names(places.spool)[0]
    folder = places.spool / name
    path = segment_path(folder, 2)
    hit = damage(case, path)
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    damaged: list[int] = []

    def taken_in() -> bool:
        damaged.extend(int(run.get("damaged_bytes", 0)) for run in ask_status(places).get("streams", []))
        return not stream_names(places.spool)

    wait_until(taken_in, 30, what=bare_agent.tail())
    with (one.folder / "progress.csv").open(newline="") as file:
        seqs = [int(row["seq"]) for row in csv.DictReader(file)]
    assert seqs == sorted(set(seqs))
    missing = set(range(800)) - set(seqs)
    assert len(missing) == hit, case
    state = json.loads((one.folder / "run.json").read_text())["state"]
    assert state in {"finished", "killed"}


def damage(case: str, path: Path) -> int:
    """Damage a segment; returns the rows that are gone."""
    data = path.read_bytes()
    frames = list(iter_frames(data))
    rows = sum(frame.kind == FrameKind.ROW for frame in frames)
    if case == "cut":
        path.write_bytes(data[: frames[-2].end + 5])
        return int(frames[-1].kind == FrameKind.ROW)
    if case == "flip":
        at = frames[4].end + 20
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        return int(frames[5].kind == FrameKind.ROW)
    if case == "zeros":
        path.write_bytes(data[: frames[9].end] + bytes(len(data) - frames[9].end))
        return sum(frame.kind == FrameKind.ROW for frame in frames[10:])
    if case == "opening":
        path.write_bytes(b"\xff" * frames[0].end + data[frames[0].end :])
        return 0
    if case == "empty":
        path.write_bytes(b"")
        return rows
    path.write_bytes(b"\xf5R" * (len(data) // 2))
    return rows
