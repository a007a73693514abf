"""A silent run.json: the agent, or the lock that the writer holds, says what the run really does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rla_client.database import open as open_database
from rla_client.database.changes.live_runs import live_runs
from rla_client.database.records.liveness import known_states, with_live_states
from rla_client.database.tree.items import run_items

WRITER = """
import sys
from rla_client import exp_manager, logger, time_step_holder
config = {"LOG_USED": ["csv"], "AGENT": {"autostart": False}}
exp_manager.configure("task", config, sys.argv[1], code_root=sys.argv[1])
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
time_step_holder.set_time(3)
logger.record_tabular("return", 1.5)
logger.dump_tabular()
print(exp_manager.log_dir, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(places: Any, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun a run and waits; it prints the log folder."""
    (tmp_path / "db").mkdir()
    command = [sys.executable, "-c", WRITER, str(tmp_path / "db")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.kill()


def silence(log: Path) -> None:
    """As if the agent had not touched run.json for ten minutes."""
    run = json.loads((log / "run.json").read_text()) | {"updated": time.time() - 600}
    (log / "new.json").write_text(json.dumps(run))
    os.replace(log / "new.json", log / "run.json")


@pytest.mark.slow
def test_the_agent_confirms_a_run_and_then_the_writers_lock(
    agent: Any, writer: subprocess.Popen[str], wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    assert writer.stdout is not None
    log = Path(next(line.strip() for line in writer.stdout if line.startswith("/")))
    database = open_database(tmp_path / "db")
    wait_until(lambda: (log / "run.json").exists() and database.find("@last").record.time_step == 3)
    silence(log)
    record = database.find("@last").record
    assert record.state == "running"
    assert record.shown_state(time.time()) == "running"
    assert [run.state for run in database.records()] == ["running"]
    items = run_items(tmp_path / "db", record.table, record.index)
    agent.kill()
    silence(log)
    assert live_runs(tmp_path / "db", items, time.time()) == {(record.table, record.index)}
    assert database.find("@last").state == "running"
    writer.kill()
    writer.wait()
    assert live_runs(tmp_path / "db", items, time.time()) == set()
    assert database.find("@last").state == "silent"
    run = json.loads((log / "run.json").read_text()) | {"updated": time.time()}
    (log / "run.json").write_text(json.dumps(run))  # the agent was killed a moment ago
    assert database.find("@last").state == "silent"
    assert json.loads((log / "run.json").read_text())["state"] == "running"  # readers never write


@pytest.mark.slow
def test_rows_that_wait_for_an_agent_are_told(
    places: Any, writer: subprocess.Popen[str], rla: Callable[..., Any], tmp_path: Path
) -> None:
    assert writer.stdout is not None
    next(line for line in writer.stdout if line.startswith("/"))
    shown = rla("show", "-d", str(tmp_path / "db"))
    assert "waits for an agent" in shown.stdout
    assert "rla-agent start" in shown.stdout
    refused = rla("rm", "@last", "-y", "-d", str(tmp_path / "db"))
    assert (refused.returncode, "being written" in refused.stderr) == (1, True)
    writer.kill()
    writer.wait()
    listed = rla("ls", "-d", str(tmp_path / "db"))
    assert "waiting" in listed.stdout
    assert "rla-agent start" in listed.stderr
    refused = rla("rm", "@last", "-y", "-d", str(tmp_path / "db"))
    assert (refused.returncode, "rows that are not written yet" in refused.stderr) == (1, True)
    assert "rla-agent start" in refused.stderr


def test_runs_of_other_machines_stay_unknown(agent: Any, root: Path, make_run: Callable[..., str]) -> None:
    make_run(state="running", updated=time.time() - 600)
    record = open_database(root).find("@last").record
    assert record.shown_state(time.time()) == "unknown"
    assert known_states(root, [record]) == {}
    assert with_live_states(root, [record], time.time()) == [record]
