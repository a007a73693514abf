"""What is new to a page: rows behind its cursors, taken back ones, a list that changed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.written_runs import write_run

from rla_client.contract.errors import ArgumentError
from rla_client.web.live_stream import Watcher
from rla_client.web.run_registry import Site


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a test takes, the list changes in none that does not ask for it."""
    monkeypatch.setattr("rla_client.web.run_registry.LOOK_S", 1e6)


@pytest.fixture
def index(root: Path) -> str:
    return write_run(root, state="running", rows=3)


def append(root: Path, index: str, text: str) -> None:
    with (root / "log" / "task" / index / "progress.csv").open("a") as file:
        file.write(text)


def watcher(root: Path, rows: int, **asked: Any) -> Watcher:
    site = Site([root])
    version = site.look(wait=True)
    return Watcher(site, {"version": version, "cursors": {"return": {"0": rows}}, **asked})


def test_rows_behind_the_cursor_once(root: Path, index: str) -> None:
    page = watcher(root, 2)
    (event, data), *others = page.look()
    assert others == []
    assert event == "rows"
    assert data == {"number": 0, "from": 2, "x": [2.0], "y": {"return": [1.0]}}
    assert page.look() == []
    append(root, index, "1.5,3,0\nnan,4,0\n,5,0\ninf,6,0\n7.0,")
    ((event, data),) = page.look()
    assert (data["from"], data["x"]) == (3, [3.0, 4.0, 5.0, 6.0])
    assert data["y"]["return"] == [1.5, "nan", None, "inf"]
    append(root, index, "7,0\n")
    ((event, data),) = page.look()
    assert (data["from"], data["y"]) == (7, {"return": [7.0]})
    json.dumps(data, allow_nan=False)


def test_rows_that_were_taken_back(root: Path, index: str) -> None:
    page = watcher(root, 3)
    assert page.look() == []
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    assert page.look() == [("anew", {"number": 0})]


def test_a_panel_of_several_ranks_is_asked_for_anew(root: Path, index: str) -> None:
    page = watcher(root, 0, ranks="mean")
    assert page.look() == []
    append(root, index, "1.5,3,0\n")
    assert page.look() == [("anew", {"number": 0})]
    with pytest.raises(ArgumentError, match="all, mean, or the number"):
        watcher(root, 0, ranks="least")


def test_rows_that_were_numbered_until_a_time_step_came(root: Path, index: str) -> None:
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("return,time-step,timestamp\n1,0,0\n2,0,0\n")
    page = watcher(root, 1)
    ((event, data),) = page.look()
    assert (event, data["x"]) == ("rows", [1.0])
    append(root, index, "3,1000,0\n")
    assert page.look() == [("anew", {"number": 0})]


def test_a_run_that_goes_on_with_another_is_asked_for_anew(root: Path, index: str) -> None:
    later = write_run(root, number=1, state="running", rows=3)
    path = root / "log" / "task" / later / "run.json"
    content = json.loads(path.read_text())
    content["parent"] = {"run": index, "table": "task", "time_step": 1, "rows": 2, "chain": True}
    path.write_text(json.dumps(content))
    page = watcher(root, 0)
    assert page.look() == []  # it has just asked
    append(root, later, "1.5,3,0\n")
    assert page.look() == [("anew", {"number": 0})]
    assert page.look() == []


def test_far_behind_is_asked_for_anew(root: Path, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_client.web.live_stream.MAX_ROWS", 10)
    page = watcher(root, 3)
    append(root, index, "".join(f"1,{step},0\n" for step in range(3, 20)))
    assert page.look() == [("anew", {"number": 0})]


def test_ended_runs_are_not_stated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(root, state="finished", rows=3)
    page = watcher(root, 0)
    monkeypatch.setattr("rla_client.web.live_stream.table_stat", None)
    assert page.look() == []


def test_the_list_changed(root: Path, index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_client.web.run_registry.LOOK_S", 0.0)
    monkeypatch.setattr("rla_client.web.run_registry.SHARE", 1e9)
    page = watcher(root, 3)
    write_run(root, number=7)
    deadline = time.monotonic() + 30
    found: list[tuple[str, dict[str, Any]]] = []
    while not found and time.monotonic() < deadline:
        found = [event for event in page.look() if event[0] == "version"]
    assert len(found) == 1


def test_x_elapsed_goes_on_from_the_first_row(root: Path, index: str) -> None:
    page = watcher(root, 2, x="elapsed")
    ((_, data),) = page.look()
    assert data["x"] == [2.0]


def test_a_table_that_vanished(root: Path, index: str) -> None:
    page = watcher(root, 0)
    (root / "log" / "task" / index / "progress.csv").unlink()
    assert page.look() == []


@pytest.mark.parametrize(
    "cursors", [[], {"return": 5}, {"return": {"zero": 1}}, {"return": {"0": "many"}}, "no"]
)
def test_bad_cursors_are_told(root: Path, index: str, cursors: object) -> None:
    with pytest.raises(ArgumentError):
        Watcher(Site([root]), {"cursors": cursors})
