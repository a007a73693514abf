"""The overview of a run: state, failure, resumes; damaged files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.one_run import TABLE, name, rewrite

from rla_client.web.run_overview import WARNINGS

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


def test_overview(server: PageServer, index: str) -> None:
    found = server.ask("run", {"run": name(index)})
    assert (found["state"], found["live"], found["step"], found["host"]) == ("finished", False, 9, "box")
    assert ["lr", 0.1] in found["parameters"]
    assert ["return", 4.5] in found["metrics"]
    assert found["tracked"] == ["lr"]
    assert found["traceback"] == ""
    assert found["about"]["run_id"] == "run0"


def test_a_failed_run_tells_why(root: Path, make_run: MakeRun, server: PageServer) -> None:
    server.ask("runs")  # so the server has looked, and has not seen the run half written
    index = make_run(number=1, state="failed")
    rewrite(root, index, "run.json", reason="ValueError: <b>no</b>", exit_code=3)
    warnings = [f"[WARN] {n} : \x1b[31mw{n}\x1b[0m" for n in range(20)]
    text = "\n".join(
        [*warnings, "Traceback (most recent call last):", '  File "x.py"', "ValueError: <b>no</b>", ""]
    )
    (root / "log" / TABLE / index / "warn.txt").write_text(text)
    found = server.ask("run", {"run": name(index)})
    assert found["traceback"].endswith("ValueError: <b>no</b>")
    assert (found["about"]["reason"], found["about"]["exit_code"]) == ("ValueError: <b>no</b>", 3)
    assert found["warnings"] == [f"[WARN] {n} : w{n}" for n in range(20 - WARNINGS, 20)]


@pytest.mark.slow
def test_what_a_resume_changed(root: Path, server: PageServer, index: str) -> None:
    change = {"time_step": 5, "time": 1.0, "changed": {"lr": [0.1, 0.2]}}
    (root / "log" / TABLE / index / "parameter.resumed-1.json").write_text(json.dumps(change))
    found = server.ask("run", {"run": name(index)})["resumes"]
    assert found == [{"file": "parameter.resumed-1.json", **change}]


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"git": 5}', '{"git": {"diff": 7}}', "[" * 100_000])
def test_broken_files_break_nothing(root: Path, server: PageServer, index: str, content: str) -> None:
    folder = root / "log" / TABLE / index
    for file in ("environment.json", "run.json", "note.json", "parameter.resumed-1.json"):
        (folder / file).write_text(content)
    (folder / "warn.txt").write_bytes(b"\xff[WARN]\n[WARN] \xff\x00\n")
    assert server.ask("environment", {"run": name(index)})["diff"]["count"] == 0
    assert server.ask("run", {"run": name(index)})["warnings"] == ["[WARN] \ufffd\ufffd"]


def test_pipes_in_the_place_of_files_hold_nobody_up(root: Path, server: PageServer, index: str) -> None:
    folder = root / "log" / TABLE / index
    for file in ("environment.json", "warn.txt", "run.json"):
        (folder / file).unlink(missing_ok=True)
        os.mkfifo(folder / file)
    assert server.ask("run", {"run": name(index)})["warnings"] == []  # or its deadline ends the wait
    assert server.ask("environment", {"run": name(index)})["environment"] == {}
