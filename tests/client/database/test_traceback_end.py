"""What `rla show` says of a run that was resumed with other hyper-parameters, and of one that failed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client.database.traceback_end import END_BYTES, MAX_TRACEBACK_LINES, traceback_end
from rla_client.run.failure import traceback_text

PROGRAM = """
import sys
from rla_client import exp_manager, logger, time_step_holder
exp_manager.configure('t', {'LOG_USED': ['csv'], 'BACKUP_CONFIG': {'backup_code_dir': ['nothing']}},
    sys.argv[1], code_root=sys.argv[1], run_id='one', resume='allow')
exp_manager.set_hyper_param(lr=float(sys.argv[2]), net={'depth': 2})
exp_manager.log_files_gen()
time_step_holder.set_time(7)
logger.record_tabular('x', 1)
logger.dump_tabular()
logger.flush(60)
def diverge(what):
    raise ValueError('loss is \\x1b[31m' + what)
diverge('nan, lr ' + sys.argv[2])
"""


@pytest.mark.slow
def test_the_parameters_of_a_resume_and_the_traceback_are_shown(
    agent: Any, tmp_path: Path, wait_until: Callable[..., Any], rla: Callable[..., Any]
) -> None:
    data = tmp_path / "data"
    data.mkdir()

    def about() -> dict[str, Any]:
        found = [json.loads(path.read_text()) for path in data.glob("log/t/*/*/*/*/run.json")]
        return dict(found[0]) if found else {}

    def failed_with(text: str) -> bool:
        now = about()
        return now.get("state") == "failed" and text in now["reason"]

    for lr in ("0.1", "0.5"):
        command = [sys.executable, "-c", PROGRAM, str(data), lr]
        done = subprocess.run(command, timeout=60, check=False, env=dict(os.environ), capture_output=True)
        assert b"ValueError" in done.stderr
        wait_until(lambda: failed_with(f"lr {lr}"))  # noqa: B023 - waited for here
    shown = rla("show", "-d", str(data)).stdout
    assert "parameter.resumed-1.json  lr 0.1 → 0.5" in shown
    assert shown.count("Traceback (most recent call last)") == 1
    assert shown.splitlines()[-1] == "ValueError: loss is ?[31mnan, lr 0.5"
    facts = json.loads(rla("show", "--json", "-d", str(data)).stdout)
    (resume,) = facts["resumed_with"]
    assert (resume["file"], resume["changed"]) == ("parameter.resumed-1.json", {"lr": [0.1, 0.5]})
    assert facts["traceback"].endswith("nan, lr 0.5")
    assert agent.alive


def deep(levels: int) -> None:
    if not levels:
        raise ValueError("diverged")
    deeper(levels)


def deeper(levels: int) -> None:
    deep(levels - 1)  # by turns: Python folds lines that repeat


def test_only_the_end_of_a_failed_run_is_told(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert traceback_end(folder, "failed") == ""
    (tmp_path / "run.json").write_text(json.dumps({"state": "failed", "reason": "ValueError: diverged"}))
    try:
        deep(200)  # more lines than are kept
    except ValueError as error:
        lines = traceback_text(error).splitlines()
    (tmp_path / "warn.txt").write_text("x" * 2 * END_BYTES + "\n" + "\n".join(lines) + "\n")
    told = traceback_end(folder, "failed").split("\n")
    assert (len(told), told[-1]) == (MAX_TRACEBACK_LINES, "ValueError: diverged")
    assert traceback_end(folder, "finished") == ""
    (tmp_path / "warn.txt").write_text("[WARN] 0 : no traceback\n")
    assert traceback_end(folder, "failed") == ""


def test_a_traceback_that_the_run_survived_is_not_its_end(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"state": "failed", "reason": "exit code 3"}))
    try:
        {"known": 1}["caught"]
    except KeyError as error:
        (tmp_path / "warn.txt").write_text(traceback_text(error) + "\n[WARN] 0 : going on\n")
    assert traceback_end(str(tmp_path), "failed") == ""
