"""`rla table` as a user calls it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

MakeRun = Callable[..., str]
Rla = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def where(root: Path, make_run: MakeRun) -> tuple[str, str]:
    """Two learning rates, three seeds each; one run is longer than its siblings."""
    for number in range(6):
        lr = 0.1 if number < 3 else 0.01
        make_run(number=number, params={"lr": lr, "seed": number}, rows=10 + 10 * (number == 5))
    return "-d", str(root)


@pytest.mark.slow
def test_each_form_has_the_same_groups_and_numbers(rla: Rla, where: tuple[str, str]) -> None:
    latex = rla("table", "--format", "latex", *where)
    assert latex.returncode == 0, latex.stderr
    assert r"0.1 & 3 & $4.5 \pm 0$ \\" in latex.stdout.splitlines()
    assert "runs of different length are averaged in 1 group(s): lr=0.01" in latex.stderr
    assert "| 0.1 | 3 | 4.5 ± 0 |" in rla("table", "-f", "markdown", *where).stdout.splitlines()
    assert "[$4.5 plus.minus 0$]" in rla("table", "-f", "typst", *where).stdout
    (low, high) = json.loads(rla("table", "--json", *where).stdout)
    grouped = json.loads(rla("ls", "--group", "lr", "-m", "return", "--json", *where).stdout)
    assert [low, high] == grouped
    assert (
        rla("table", "-f", "csv", *where).stdout
        == rla("ls", "-g", "lr", "-m", "return", "--csv", *where).stdout
    )
    assert rla("ls", "-g", "lr", *where).stderr.count("lr=0.01") >= 1  # said there, too


def test_what_cannot_be_tabulated_is_said(rla: Rla, where: tuple[str, str]) -> None:
    assert "no run has a metric 'nope'" in rla("table", "-m", "nope", *where).stderr
    assert "no run has 'nope'" in rla("table", "-g", "nope", *where).stderr
    assert "no run matches" in rla("table", "--where", "lr == 7", *where).stderr
    assert "there are: plain, latex" in rla("table", "-f", "word", *where).stderr
    assert (
        "a setting of its own"
        in rla(
            "table", "-n", "2", "--where", "lr == 0.1 and seed == 0 or lr == 0.01 and seed == 3", *where
        ).stderr
    )
