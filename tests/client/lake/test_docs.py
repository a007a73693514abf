"""What docs/how-to/lake.md shows works."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from written_runs import MakeRun

from rla_client.database.lake.build import build
from rla_client.database.lake.sql import _VIEWS

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "lake.md"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no checkout: the installed wheel is tested")


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_notebooks_cells(
    root: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    for number in range(3):
        make_run(number=number)
    build(root, time.time() + 1)
    (tmp_path / "data").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in blocks("python"):
        exec(cell, names)
    assert len(names["frame"]) == 3  # type: ignore[arg-type]
    assert len(names["curves"]) == 30  # type: ignore[arg-type]


def test_the_commands(
    root: Path, make_run: MakeRun, tmp_path: Path, rla: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    pytest.importorskip("duckdb")
    make_run()
    (tmp_path / "best.sql").write_text("SELECT * FROM runs")
    (commands,) = blocks("sh")
    for words in (shlex.split(line) for line in re.split(r"\n(?=rla)", commands)):
        done = rla(*words[1:], "--data-root", str(root), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_every_view_is_described() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(_VIEWS)
