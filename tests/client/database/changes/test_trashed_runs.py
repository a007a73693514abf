"""Which runs the trash holds, and one run out of an entry of several."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_client.contract.errors import DatabaseError
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.trash import move_to_trash, trash_entries
from rla_client.database.changes.trashed_runs import restore, run_of, trashed
from rla_client.database.tree.items import run_items


def test_the_run_of_a_path() -> None:
    index = "2026/11/21/09-30-00-123456_10.0.0.5_&lr=0.1"
    assert run_of(f"log/group/task/{index}") == ("group/task", index)
    assert run_of(f"log/task/{index}/progress.csv.torn") == ("task", index)
    assert run_of(f"archive_tester/task/{index}.json") == ("task", index)
    assert run_of("log/notes.txt") is None


def remove_two(root: Path, make_run: Callable[..., str]) -> tuple[str, str, int]:
    """Two runs in one entry, and how many paths each has."""
    first, second = make_run(number=1), make_run(number=2)
    items = [item for index in (first, second) for item in run_items(root, "task", index)]
    with changing(root, 1000.0):
        move_to_trash(root, items, 1000.0)
    return first, second, len(items) // 2


def test_one_run_comes_back_and_the_others_stay(root: Path, make_run: Callable[..., str]) -> None:
    first, second, paths = remove_two(root, make_run)
    with changing(root, 1000.0):
        assert restore(root, "09-30-02") == paths
    (left,) = trashed(root)
    assert left.runs == (("task", first),)
    assert (left.title, left.what) == (first[:26], f"{paths} path(s)")
    assert (root / "log" / "task" / second).is_dir()
    with changing(root, 1000.0), pytest.raises(DatabaseError, match="no entry and no run"):
        restore(root, "09-30-02")
    with changing(root, 1000.0):
        assert restore(root, first) == paths
    assert trash_entries(root) == []


def test_a_restore_of_one_run_that_was_killed_before_its_note(
    root: Path, make_run: Callable[..., str]
) -> None:
    """The renames were made, the entry still names them: all of it comes back by the next restores."""
    first, second, _ = remove_two(root, make_run)
    (entry,) = trash_entries(root)
    for old, new in entry.moves:
        if run_of(old) == ("task", second):
            shutil.move(root / new, root / old)
    with changing(root, 1000.0):
        restore(root, entry.name)
    assert all((root / "log" / "task" / index).is_dir() for index in (first, second))
    assert trash_entries(root) == []
