"""What the Tab key offers, asked as bash asks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def offered(root: Path | None, line: str, shell: str = "bash", broken_at: str = "=:") -> list[str]:
    """What a shell is told for a line with the cursor at its end."""
    words = [word for word in re.split(rf"\s+|([{broken_at}])", line) if word is not None]
    words = [word for number, word in enumerate(words) if word or number == len(words) - 1]
    if words[-1] == "" and words[-2] in {"=", ":"}:
        words.pop()  # as bash has it: the sign is the word at the cursor
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
        "_RLA_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
    }
    if root is not None:
        environment["RLA_DATA_ROOT"] = str(root)
    script = "import sys; sys.argv = ['rla']; from rla_client.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd="/", check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.slow
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


@pytest.mark.slow
def test_without_a_database_there_is_nothing_to_offer() -> None:
    assert offered(None, "rla show 2026") == []
    assert offered(None, "rla ls -t t") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rla show seed=", ["1", "2", "10"]),  # bash replaces what stands behind the sign
        ("rla show seed=1", ["1", "10"]),
        ("rla show se", ["seed=1", "seed=2", "seed=10"]),
        ("rla compare lr=", ["0.1", "0.01"]),
        ("rla plot return -r seed=2", ["2"]),
        ("rla plot return --group l", ["lr"]),
        ("rla plot return --group=l", ["lr"]),
        ("rla plot return -g seed,l", ["seed,lr"]),
        ("rla plot return --x ti", ["time-step", "timestamp"]),
        ("rla ls --columns rea", ["reason"]),
        ("rla ls --columns lr,retu", ["lr,return"]),
        ("rla ls --sort lr", ["lr"]),
        ("rla ls --where st", ["state", "step"]),
        ("rla ls t", ["task"]),
        ("rla ls --tag g", ["good"]),
        ("rla ls --state fa", ["failed"]),
        ("rla tag seed=", ["1", "2", "10"]),
    ],
)
def test_values_and_names_of_parameters(
    root: Path, make_run: Callable[..., str], line: str, expected: list[str]
) -> None:
    _fill(root, make_run)
    assert offered(root, line) == expected


def test_a_quoted_selector_goes_on_behind_its_ampersand(root: Path, make_run: Callable[..., str]) -> None:
    _fill(root, make_run)
    assert offered(root, "rla show 'lr=0.1&se", broken_at="|") == ["lr=0.1&seed=1", "lr=0.1&seed=10"]


@pytest.mark.slow
def test_zsh_is_not_told_to_offer_files_for_names(root: Path, make_run: Callable[..., str]) -> None:
    _fill(root, make_run)
    for line in ("rla plot return --group zz", "rla show zz", "rla plot zz", "rla ls --sort zz"):
        assert offered(root, line, "zsh") == []
        assert offered(None, line, "zsh") == []
    assert "seed=10" in " ".join(offered(root, "rla show seed=1", "zsh"))
    assert offered(root, "rla plot return --out ", "zsh") == ["_files"]


@pytest.mark.slow
def test_a_tab_that_cannot_be_answered_is_silent(root: Path, make_run: Callable[..., str]) -> None:
    """A broken catalogue, a folder that is none, words that are no command, a count that is none."""
    _fill(root, make_run)
    assert offered(root / "nowhere", "rla show 20") == []
    assert offered(root, "rla nonsense --so") == []
    (root / "log").rename(root / "log.away")
    (root / "log").write_text("a file")
    assert offered(root, "rla plot re") == []


def _fill(root: Path, make_run: Callable[..., str]) -> None:
    for number, (lr, seed) in enumerate([(0.1, 1), (0.01, 2), (0.1, 10)]):
        index = make_run(number=number, info=f"&lr={lr}&seed={seed}", params={"lr": lr, "seed": seed})
        (root / "log" / "task" / index / "note.json").write_text('{"tags": ["good"]}')
