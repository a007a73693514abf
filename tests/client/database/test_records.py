"""How long a run took."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client import database
from rla_client.contract.opening import ran_s

AGAIN = {"reopened": 1000.0, "ran_before_s": 50.0}
ENDED = {"state": "finished", "opened": 100.0, "last_row": 150.0, "closed": 160.0}


@pytest.mark.parametrize(
    ("run", "last_row", "seconds"),
    [
        (ENDED, None, 60.0),
        ({**ENDED, "state": "failed"}, 150.0, 60.0),
        ({**ENDED, "state": "killed", "closed": 90_000.0}, None, 50.0),  # noticed a day later
        ({"state": "killed", "opened": 100.0, "closed": 130.0}, None, 30.0),
        ({**ENDED, "state": "running", "closed": None}, 155.0, 55.0),
        ({"opened": 100.0}, 155.0, 55.0),  # the original's
        ({"opened": 100.0}, None, None),
        ({}, 155.0, None),
        ({**ENDED, "opened": 1000.0, "reopened": 1000.0, "last_row": 1.0, "closed": 5.0}, None, 0.0),
        ({**ENDED, **AGAIN, "closed": 1040.0, "last_row": 1030.0}, None, 90.0),
        ({"state": "running", "opened": 100.0, "last_row": 150.0, **AGAIN}, None, 50.0),
        ({"state": "running", "opened": 100.0, "reopened": 1000.0, "ran_before_s": 7.0}, None, 7.0),
    ],
)  # fmt: skip
def test_the_time_in_which_a_process_ran(
    run: dict[str, Any], last_row: float | None, seconds: float | None
) -> None:
    assert ran_s(run, last_row) == seconds


PROGRAM = """
import sys
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure('t', {'LOG_USED': ['csv'], 'BACKUP_CONFIG': {'backup_code_dir': ['nothing']}},
    sys.argv[1], code_root=sys.argv[1], run_id='one', resume='allow')
exp_manager.set_hyper_param(lr=0.1)
exp_manager.log_files_gen()
for step in range(2):
    time_step_holder.set_time(step)
    logger.record_tabular('x', step)
    logger.dump_tabular()
logger.flush(60)
if not exp_manager.resumed:
    import os, signal
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_the_time_between_a_kill_and_the_resume_does_not_count(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    data = tmp_path / "data"
    data.mkdir()

    def run() -> int:
        command = [sys.executable, "-c", PROGRAM, str(data)]
        return subprocess.run(command, timeout=60, check=False, env=dict(os.environ)).returncode

    def about() -> dict[str, Any]:
        (path,) = data.glob("log/t/*/*/*/*/run.json")
        return dict(json.loads(path.read_text()))

    assert run() == -signal.SIGKILL
    wait_until(lambda: about()["state"] == "killed")
    first = about()
    assert first["reopened"] is None
    gap_began = first["closed"]
    assert run() == 0
    wait_until(lambda: about()["state"] == "finished")
    second = about()
    assert second["opened"] == first["opened"]
    assert second["reopened"] > gap_began
    assert second["ran_before_s"] == pytest.approx(first["last_row"] - first["opened"])
    (record,) = database.open(data).records()
    assert record.duration_s == pytest.approx(second["ran_before_s"] + second["closed"] - second["reopened"])
    assert record.duration_s < second["closed"] - second["opened"] - (second["reopened"] - gap_began) + 1e-6
    assert agent.alive
