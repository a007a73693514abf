"""Damaged segments: the agent starts, what is before the damage survives, what is after is found again."""

from __future__ import annotations

import bisect
import csv
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from crash.workload import row_of
from support.oracle import Trainer

from rla_agent.model.frame_decoder import parse
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, encode_frame, iter_frames, pack
from rla_client.contract.spool.segments import segment_path, stream_names

ROWS = 200
TAIL_BYTES = 3000
FLIPS = 1000


def segment(size: int = 0) -> tuple[bytes, list[int]]:
    """Frames of ROWS rows, or of more than `size` bytes, and the offset after each."""
    data = bytearray()
    ends: list[int] = []
    while len(ends) < ROWS or len(data) <= size:
        seq = len(ends)
        data += encode_frame(FrameKind.ROW, pack([seq, float(seq), row_of(0, seq)]))
        ends.append(len(data))
    return bytes(data), ends


@pytest.mark.slow
@pytest.mark.parametrize("final", [True, False])
def test_cut_at_every_byte_of_a_tail(final: bool) -> None:
    cut_at_each(TAIL_BYTES, 1, final=final)


@pytest.mark.soak
@pytest.mark.parametrize("final", [True, False])
def test_cut_at_every_byte_of_64_kib(final: bool) -> None:
    cut_at_each(64 << 10, 97, final=final)


def cut_at_each(tail: int, whole_every: int, *, final: bool) -> None:
    """Cut at each of the last `tail` bytes; each `whole_every`-th time read from the first frame on."""
    data, ends = segment(tail)
    for cut in range(len(data) - tail, len(data)):
        whole = bisect.bisect_right(ends, cut)
        skip = 0 if cut % whole_every == 0 else max(0, whole - 20)
        begin = ends[skip - 1] if skip else 0
        batch = parse(data[begin:cut], 1, begin, final=final)
        assert [record.content.step for record in batch.records] == list(range(skip, whole))  # type: ignore[union-attr]
        last = ends[whole - 1] if whole else 0
        assert (batch.end, batch.damaged) == ((cut, cut - last) if final else (last, 0))
    print(f"cut at each of {tail} bytes, no more bytes to come: {final}")


@pytest.mark.slow
def test_each_flipped_bit_costs_the_frame_it_hits() -> None:
    flip(FLIPS)


@pytest.mark.soak
def test_each_of_ten_thousand_flipped_bits_costs_the_frame_it_hits() -> None:
    flip(10_000)


def flip(count: int) -> None:
    """Flip `count` random bits, one at a time."""
    data, ends = segment()
    chance = random.Random(4)
    begins = [0, *ends[:-1]]
    for _ in range(count):
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        broken = bytearray(data)
        broken[at] ^= 1 << bit
        hit = bisect.bisect_right(ends, at)
        batch = parse(bytes(broken), 1, 0, final=True)
        found = [record.content.step for record in batch.records]  # type: ignore[union-attr]
        assert found == [seq for seq in range(ROWS) if seq != hit], f"bit {bit} of byte {at}"
        assert batch.damaged == ends[hit] - begins[hit]
    print(f"{count} flipped bits")


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


@pytest.mark.slow
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
    wait_until(lambda: not stream_names(places.spool), 30, what=bare_agent.tail)
    with (one.folder / "progress.csv").open(newline="") as file:
        seqs = [int(row["seq"]) for row in csv.DictReader(file)]
    assert seqs == sorted(set(seqs))
    missing = set(range(800)) - set(seqs)
    assert len(missing) == hit, case
    run = json.loads((one.folder / "run.json").read_text())
    assert run["state"] in {"finished", "killed"}
    assert (run["damaged_bytes"] > 0) == (case != "empty"), "a loss that nobody can see"


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
