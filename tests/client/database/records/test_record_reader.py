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
from rla_client.contract.run_file import run_duration_s

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
    assert run_duration_s(run, last_row) == seconds


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


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\0" * 4096, "it holds NUL bytes"),
        (b"time-step,a\n0,1\n" + b"\0" * 4096 + b"\n", "it holds NUL bytes"),
        (b'time-step,a,note\n0,1,"x\n' + b"1,2,y\n" * 20_000, "a quote is never closed: the 20000 lines"),
        (b'time-step,a,note\n0,1,"x\n1,2,y\n2,3,z\n', "a quote is never closed: the 2 lines"),
        (b'time-step,a,note\n0,1,"' + b"x" * 9000 + b"\n1,2,y\n", "a quote is never closed: the 1"),
        (b"time-step," + b"n" * 3_000_000 + b"\n0,1\n", "name(s) of more than 1000 characters"),
    ],
)
def test_a_table_that_cannot_be_right_is_a_problem(
    root: Path, make_run: Callable[..., str], rla: Callable[..., Any], content: bytes, problem: str
) -> None:
    (root / "log" / "task" / make_run() / "progress.csv").write_bytes(content)
    (record,) = database.open(root).records()
    assert any(problem in one for one in record.problems), record.problems
    assert max(map(len, record.problems)) < 1000
    done = rla("ls", "-d", str(root))
    assert done.returncode == 0, done.stderr
    assert "1 run(s) with unreadable files" in done.stderr
    assert len(done.stdout + done.stderr) < 10_000


def test_a_text_with_quotes_in_it_is_none(root: Path, make_run: Callable[..., str]) -> None:
    path = root / "log" / "task" / make_run() / "progress.csv"
    path.write_text('time-step,a,note\n0,1,5" disk\n1,2,"two\nlines"\n2,3,"he said ""no"""\n')
    (record,) = database.open(root).records()
    assert record.problems == ()


def test_a_parameter_with_an_endless_name_is_left_out(root: Path, make_run: Callable[..., str]) -> None:
    make_run(params={"lr": 1, "net": {"x" * 3_000_000: 2, "size": 3}})
    (record,) = database.open(root).records()
    assert record.hyper.flat() == {"lr": 1, "net.size": 3}
    assert "1 name(s) of more than 1000 characters" in record.problems[0]
