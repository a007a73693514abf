"""Damaged spools through a real agent: what is whole arrives, what is not is counted, nobody has to help."""

# ruff: noqa: E501
from __future__ import annotations

import csv
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from crash.workload import row_of

import rla_client.stream.segment_writer as spool_module
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.protocol import FrameKind, encode_frame, iter_frames, pack
from rla_client.contract.spool.segments import new_stream_name, segment_numbers, segment_path, stream_names
from rla_client.stream.segment_writer import SegmentWriter

ROWS = 120
SEGMENT_BYTES = 3000
CORPUS = Path(__file__).with_name("data") / "spools"


@dataclass(slots=True)
class Damaged:
    """One stream: its data root, which rows must arrive, and how many bytes are damaged."""

    root: Path
    expected: list[int]
    damaged: int
    how: str


def write_stream(places: Places, root: Path) -> Path:
    """A stream of ROWS rows in some segments, closed; its folder."""
    root.mkdir()
    found = os.stat(root)
    opening = {
        "run": new_stream_name(), "epoch": 1, "opened": 1.5, "root": str(root), "root_device": found.st_dev,
        "root_inode": found.st_ino, "folders": {"log": "."}, "names": {}, "sinks": ["csv"], "table": "",
        "index": "", "primary": True, "label": "", "pid": os.getpid(), "host": "h", "user": "u", "python": "p",
        "client": "0", "config": None, "offline": False,
    }  # fmt: skip
    writer = SegmentWriter(
        places.spool,
        lambda number, rows: encode_frame(
            FrameKind.OPEN, pack({**opening, "segment": number, "rows": rows, "lost": 0})
        ),
    )
    for seq in range(ROWS):
        writer.append(encode_frame(FrameKind.ROW, pack([seq, float(seq), row_of(0, seq)])), 1)
    writer.close()
    return writer.folder


def damage(folder: Path, root: Path, chance: random.Random) -> Damaged:
    """Cut the last segment at a random byte, or flip a random bit of any."""
    last = max(segment_numbers(folder))
    cut = chance.random() < 0.3
    number = last if cut else chance.randint(1, last)
    path = segment_path(folder, number)
    data = path.read_bytes()
    at = chance.randrange(len(data))
    frames = list(iter_frames(data))
    begins = [0, *(frame.end for frame in frames[:-1])]
    if cut:
        path.write_bytes(data[:at])
        hit = [index for index, frame in enumerate(frames) if frame.end > at]
        bytes_hit = at - begins[hit[0]]
    else:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        hit = [index for index, frame in enumerate(frames) if begins[index] <= at < frame.end]
        bytes_hit = frames[hit[0]].end - begins[hit[0]]
    before = sum(rows_in(segment_path(folder, earlier)) for earlier in range(1, number))
    gone = {before + index - 1 for index in hit if index}  # frame 0 is the opening
    expected = [seq for seq in range(ROWS) if seq not in gone]
    return Damaged(root, expected, bytes_hit, f"segment {number} of {last}, byte {at}, cut: {cut}")


def rows_in(path: Path) -> int:
    return sum(frame.kind == FrameKind.ROW for frame in iter_frames(path.read_bytes()))


def drain_damaged(
    places: Places,
    agent: BareAgent,
    chance: random.Random,
    wait_until: Callable[..., object],
    tmp_path: Path,
    count: int,
) -> None:
    """Write, damage, take in and compare `count` streams."""
    places.create()
    batch = [tmp_path / f"run-{number}" for number in range(count)]
    cases = [damage(write_stream(places, root), root, chance) for root in batch]
    agent.spawn()
    agent.drain(wait_until, 30 + count)
    for case in cases:
        with (case.root / "progress.csv").open(newline="") as file:
            assert [int(row["seq"]) for row in csv.DictReader(file)] == case.expected, case.how
        run = json.loads((case.root / "run.json").read_text())
        assert run["damaged_bytes"] == case.damaged, case.how
        assert run["state"] == "killed"
        shutil.rmtree(case.root)
    agent.kill()


@pytest.mark.slow
def test_agent_takes_in_damaged_spools(
    places: Places,
    bare_agent: BareAgent,
    chance: random.Random,
    wait_until: Callable[..., object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", SEGMENT_BYTES)
    drain_damaged(places, bare_agent, chance, wait_until, tmp_path, 40)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_agent_takes_in_a_thousand_damaged_spools(
    places: Places,
    bare_agent: BareAgent,
    chance: random.Random,
    wait_until: Callable[..., object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", SEGMENT_BYTES)
    for _ in range(10):
        drain_damaged(places, bare_agent, chance, wait_until, tmp_path, 100)


@pytest.mark.parametrize("case", sorted(path.name for path in CORPUS.iterdir()))
def test_spools_that_once_needed_a_human(
    case: str, places: Places, bare_agent: BareAgent, wait_until: Callable[..., object]
) -> None:
    """Each was found by a soak: the agent must be done with it by itself, and go on serving."""
    places.create()
    stream = places.spool / "18ea20e35690fe8e-1-15722006"
    shutil.copytree(CORPUS / case, stream)
    bare_agent.spawn()
    wait_until(bare_agent.serves)
    wait_until(lambda: not stream_names(places.spool), what=lambda: f"the end of {case}: {bare_agent.tail()}")
    assert bare_agent.serves()
