"""Tags, notes and display names: what is taken, what stays of a note.json of another form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.database.records.notes import MAX_NAME_CHARACTERS, change_note
from rla_client.database.records.record_reader import read_record

MakeRun = Callable[..., str]


def test_a_name_is_stored_beside_tags_and_note_and_each_leaves_the_others(
    root: Path, make_run: MakeRun
) -> None:
    index = make_run()
    change_note(root, f"task/{index}", add=["best"], note="why")
    change_note(root, f"task/{index}", display_name="  neuer Lauf π  ")
    change_note(root, f"task/{index}", add=["two"])
    record = read_record(root, "task", index, ("log",))
    assert (record.display_name, record.tags, record.note) == ("neuer Lauf π", ("best", "two"), "why")
    assert change_note(root, f"task/{index}", display_name="")["display_name"] == ""
    assert read_record(root, "task", index, ("log",)).display_name == ""


@pytest.mark.parametrize(
    "name", ["two\nlines", "\x1b[31mred", "a\x00b", "x" * (MAX_NAME_CHARACTERS + 1), "\u202eabc"]
)
def test_a_name_that_no_list_can_show_is_refused(root: Path, make_run: MakeRun, name: str) -> None:
    index = make_run()
    with pytest.raises(ArgumentError, match="is not a name"):
        change_note(root, f"task/{index}", display_name=name)
    assert not (root / "log/task" / index / "note.json").exists()


def test_what_others_wrote_into_note_json_is_bounded(root: Path, make_run: MakeRun) -> None:
    index = make_run()
    path = root / "log/task" / index / "note.json"
    for content in ({"display_name": 7}, {"display_name": "x" * 100_000}, {"display_name": None}):
        path.write_text(json.dumps(content))
        assert len(read_record(root, "task", index, ("log",)).display_name) <= 1000
    path.write_text("{")
    assert change_note(root, f"task/{index}", display_name="new")["display_name"] == "new"


def test_a_run_without_a_log_folder_has_no_place_for_a_name(root: Path) -> None:
    with pytest.raises(DatabaseError, match="no log folder"):
        change_note(root, "task/2026/11/21/x", display_name="new")
