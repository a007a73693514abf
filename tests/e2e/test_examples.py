"""The examples that a newcomer runs first: no warning, and no more output than one screen or two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
pytestmark = pytest.mark.usefixtures("agent")


def run(name: str, root: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / name), "--data-root", str(root)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=400, cwd=root.parent
    )
    assert done.returncode == 0, done
    assert "Warning" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_simplest(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert "final mse" in run("simplest.py", tmp_path / "data", "--steps", "50")


@pytest.mark.slow
def test_ppo_prints_a_few_tables_only(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    printed = run("ppo_cartpole.py", tmp_path / "data", "--timesteps", str(20 * 2048), "--epochs", "1")
    assert printed.count("| time-step ") == 3  # `brief`: the others are in log.txt
    assert len(printed.splitlines()) < 100
    assert "mean return of the last 50 episodes" in printed
