"""What the Tab key offers, asked as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def offered(root: Path | None, line: str) -> list[str]:
    words = line.split(" ")
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "_RLA_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    if root is not None:
        environment["RLA_DATA_ROOT"] = str(root)
    script = "import sys; sys.argv = ['rla']; from rla_client.database.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd="/", check=False
    )
    assert "Traceback" not in done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rla sho", ["show"]),
        ("rla show @", ["@last"]),
        ("rla show 09-30-0", ["09-30-01-123456", "09-30-00-123456"]),
        ("rla show 2026", ["2026/11/21/09-30-01-123456", "2026/11/21/09-30-00-123456"]),
        ("rla ls --table t", ["task"]),
        ("rla plot re", ["return"]),
        ("rla show -m time", ["time-step", "timestamp"]),
    ],
)
def test_runs_tables_and_metrics(
    root: Path, make_run: Callable[..., str], line: str, expected: list[str]
) -> None:
    for number in range(2):
        make_run(number=number)
    assert offered(root, line) == expected


def test_without_a_database_there_is_nothing_to_offer() -> None:
    assert offered(None, "rla show 2026") == []
    assert offered(None, "rla ls -t t") == []
