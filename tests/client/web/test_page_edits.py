"""Tags, notes and the trash on the page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.one_run import TABLE, name

from rla_client.contract.process.locks import try_lock
from rla_client.web.page_edits import MAX_NOTE

if TYPE_CHECKING:
    from support.page_lab import PageServer
    from support.written_runs import MakeRun


def test_tags_and_note(root: Path, server: PageServer, index: str) -> None:
    asked = {"run": name(index), "add": ["good", "old"], "note": "<b>läuft</b>"}
    changed = {"tags": ["good", "old"], "note": "<b>läuft</b>", "display_name": ""}
    assert server.ask("note", asked) == changed
    server.ask("note", {"run": name(index), "remove": ["old"]})
    found = server.ask("run", {"run": name(index)})
    assert (found["tags"], found["note"]) == (["good"], "<b>läuft</b>")
    assert server.ask("note", {"run": name(index), "display_name": "mine"})["display_name"] == "mine"
    assert server.ask("run", {"run": name(index)})["display_name"] == "mine"


@pytest.mark.parametrize(
    "change",
    [
        {"add": ["a,b"]},
        {"add": [""]},
        {"add": 5},
        {"remove": [5]},
        {"note": 5},
        {"note": "x" * (MAX_NOTE + 1)},
    ],
)
def test_what_is_no_tag_or_note_is_refused(server: PageServer, index: str, change: dict[str, Any]) -> None:
    server.refused("note", {"run": name(index), **change})


def test_a_change_waits_for_nobody(root: Path, server: PageServer, index: str) -> None:
    (root / ".rla").mkdir()
    lock = os.open(root / ".rla" / "lock", os.O_RDWR | os.O_CREAT)
    assert try_lock(lock)
    try:
        assert "another command" in server.refused("note", {"run": name(index), "note": "x"})
    finally:
        os.close(lock)


def test_trash_and_undo(root: Path, server: PageServer, index: str) -> None:
    about = server.ask("trash", {"run": name(index)})
    assert "checkpoint" in about["items"]
    assert about["bytes"] > 0
    assert (root / "log" / TABLE / index).is_dir()
    gone = server.ask("trash", {"run": name(index), "sure": True})
    assert not (root / "log" / TABLE / index).exists()
    assert server.ask("runs")["number"] == []
    server.refused("run", {"run": name(index)})
    server.ask("restore", gone)
    assert server.ask("run", {"run": name(index)})["step"] == 9
    assert "no entry" in server.refused("restore", gone)


def test_a_live_run_is_not_moved(root: Path, make_run: MakeRun, server: PageServer) -> None:
    index = make_run(number=1, state="running")
    for sure in (False, True):
        assert "being written" in server.refused("trash", {"run": name(index), "sure": sure})
    assert (root / "log" / TABLE / index).is_dir()


@pytest.mark.parametrize(
    "asked", [{}, {"place": 5}, {"place": -1}, {"place": 0, "entry": "../x"}, {"place": True}]
)
def test_what_the_trash_has_not_is_refused(server: PageServer, asked: dict[str, Any]) -> None:
    server.refused("restore", asked)
