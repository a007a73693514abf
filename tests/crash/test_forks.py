"""Worker processes of every making: no hang, each stream's rows once, in files of their own."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crash.conftest import BareAgent
from support.oracle import event_records

from rla_client.contract.agent.places import Places

SCRIPT = Path(__file__).with_name("forks.py")
ROWS = 300
WORKERS = 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["before", "after", "thread", "fork", "spawn", "forkserver", "loader"])
def test_workers_log_into_files_of_their_own(
    method: str, places: Places, bare_agent: BareAgent, wait_until: Callable[..., object], tmp_path: Path
) -> None:
    if method == "loader":
        pytest.importorskip("torch")
    places.stopped_marker.touch()
    bare_agent.spawn()
    folder = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), method, str(folder), str(ROWS)],
        timeout=180,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    bare_agent.drain(wait_until)
    files = sorted(folder.glob("progress*.csv"))
    assert len(files) == 1 + WORKERS, files
    for path in files:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["who"] for row in rows} == {"parent" if path.name == "progress.csv" else "worker"}
        assert [int(row["seq"]) for row in rows] == list(range(ROWS)), path.name
    events = sorted(folder.glob("tb/*/events.*"))
    assert [len(event_records(path)) for path in events] == [ROWS + 1] * (1 + WORKERS)
