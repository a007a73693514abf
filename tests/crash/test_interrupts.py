"""Asynchronous exceptions anywhere in the client: no torn frame, nothing lost that returned, none twice."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from support.oracle import event_records

from rla_client.contract.agent.places import Places

SCRIPT = Path(__file__).with_name("interrupts.py")
EXCEPTIONS = 20_000


@pytest.mark.slow
@pytest.mark.parametrize("agent_up", [True, pytest.param(False, marks=pytest.mark.further)])
def test_exceptions_from_signal_handlers(
    agent_up: bool, places: Places, bare_agent: BareAgent, wait_until: Callable[..., object], tmp_path: Path
) -> None:
    places.stopped_marker.touch()
    folder, result = tmp_path / "run", tmp_path / "result.json"
    if agent_up:
        bare_agent.spawn()
        wait_until(bare_agent.serves)
    count = EXCEPTIONS if agent_up else EXCEPTIONS // 4
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), str(count), str(result)], timeout=400, check=False
    )
    assert done.returncode == 0
    if not agent_up:
        bare_agent.spawn()
    bare_agent.drain(wait_until)
    told = json.loads(result.read_text())
    with (folder / "progress.csv").open(newline="") as file:
        rows = [(row["who"], int(row["seq"])) for row in csv.DictReader(file)]
    counts = Counter(rows)
    print(
        {who: (len(seqs), told["tried"][who]) for who, seqs in told["returned"].items()},
        told["raised"],
        len(rows),
    )
    assert max(counts.values()) == 1, [row for row, n in counts.items() if n > 1][:5]
    for who, seqs in told["returned"].items():
        there = [seq for name, seq in rows if name == who]
        assert who == "handler" or there == sorted(there), who  # handlers interrupt handlers
        assert set(seqs) <= set(there), f"{who}: {sorted(set(seqs) - set(there))[:10]} are missing"
        assert len(there) <= told["tried"][who]
    events = next((folder / "tb" / "events").iterdir())
    assert len(event_records(events)) == len(rows) + 1
