"""`rla ls`: why runs ended that did not finish."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]
REASON = "killed by SIGKILL, likely out of memory: 31.2 of 32 GiB"


def test_a_killed_run_says_why_and_a_finished_one_nothing(rla: Rla, root: Path, make_run: MakeRun) -> None:
    for number, state in enumerate(("finished", "killed")):
        index = make_run(number=number, state=state)
        path = root / "log/task" / index / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "reason": REASON}))
    head, finished, killed = rla("ls", "-d", str(root)).stdout.splitlines()
    assert head.split()[-1] == "reason"
    assert killed.endswith(REASON)
    assert REASON not in finished
    assert "reason" not in rla("ls", "--state", "finished", "-d", str(root)).stdout


def test_groups_of_several_tables_are_told_of(rla: Rla, root: Path, make_run: MakeRun) -> None:
    for number, table in enumerate(("task", "task", "other")):
        make_run(number=number, table=table, params={"lr": 0.1 if number else 0.2})
    mixed = rla("ls", "-g", "lr", "-d", str(root)).stderr
    assert "runs of 2 tables averaged together; --group table,… keeps them apart" in mixed
    assert "averaged together" not in rla("ls", "-g", "table,lr", "-d", str(root)).stderr
    assert "averaged together" not in rla("ls", "-g", "lr", "--where", "lr == 0.2", "-d", str(root)).stderr
