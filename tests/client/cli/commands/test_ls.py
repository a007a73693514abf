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
