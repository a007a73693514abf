"""What a run lost is told by everything that tells of a run, with one number, names and reasons."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client.contract.agent.places import Places

PROGRAM = """
import sys
import rla_client
from rla_client import logger
from matplotlib.figure import Figure
config = {"LOG_USED": ["csv"], "AGENT": {"spool_max_bytes": 16 << 20, "autostart": False}}
manager = rla_client.init("t", rla_config=config, data_root=sys.argv[1], code_root=sys.argv[1])
for step in range(300):
    rla_client.log({"x": "y" * 100_000}, step=step)
print("ready", flush=True)
sys.stdin.readline()
assert not logger.flush(60)
bad = Figure()
bad.subplots().set_title("$\\\\frac{$")
rla_client.log({"bad": bad, "x": "the last"}, step=1000)
print("flushed", logger.flush(60), logger.flush(60))
print("lost", manager.run.outbox.lost, flush=True)
"""


@pytest.mark.slow
def test_lost_rows_and_figures_are_told_everywhere(
    places: Places, new_agent: Callable[..., Any], tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    places.stopped_marker.touch()
    data = tmp_path / "data"
    data.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, data],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert any(line == "ready\n" for line in process.stdout)
    places.stopped_marker.unlink()
    agent = new_agent().start()
    output, errors = process.communicate("\n", timeout=120)
    assert process.returncode == 0, errors
    assert "flushed False True" in output, "once each for what came before"
    lost = int(output.splitlines()[-1].split()[1])
    assert lost > 0
    (path,) = data.glob("log/t/*/*/*/*/run.json")
    wait_until(lambda: json.loads(path.read_text())["state"] == "finished")
    run = json.loads(path.read_text())
    rows = path.with_name("progress.csv").read_text().splitlines()
    assert run["lost"] == lost == 300 - (len(rows) - 2), "all but the header and the row after it"
    assert run["lost_others"] == 1
    told = {loss["kind"]: loss for loss in run["losses"]}
    assert told["figure"]["name"] == "1000-bad.png"
    assert "Expected" in told["figure"]["reason"], "what matplotlib says, not where"
    assert "limit" in told["row"]["reason"]
    assert f"the run ended; lost: {lost} rows" in errors, "the program's last word"
    (shown,) = agent.status()["runs"]
    assert (shown["lost"], shown["lost_others"], shown["losses"]) == (lost, 1, run["losses"])
    for command in (["show", "@last"], ["fsck", "--json"]):
        said = rla(*command, "--data-root", str(data))
        assert f"{lost} rows and 1 other thing" in said, command
        assert "1000-bad.png" in said, command
    assert f"{lost} rows and 1 other thing" in agent.command("status").stdout


def rla(*arguments: str) -> str:
    command = [sys.executable, "-m", "rla_client.cli.app", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return " ".join(done.stdout.split())
