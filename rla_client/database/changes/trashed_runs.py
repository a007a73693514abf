"""Runs in the trash.

`trash` moves paths and has no notion of runs. This module lists an entry by its runs, and restores a run
from the newest entry that holds it: a run may be in several, if its kinds were removed one after another.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import AmbiguousRunError, DatabaseError
from rla_client.contract.layout import ARCHIVE_TESTER
from rla_client.database.changes.trash import TrashEntry, restore_trash, trash_entries
from rla_client.database.tree.items import archive_stem
from rla_client.database.tree.run_names import short_name
from rla_client.database.tree.run_reference import MAX_CANDIDATES_SHOWN, match_runs

_ITEM = re.compile(r"(?P<kind>[^/]+)/(?P<table>.+?)/(?P<day>\d{4}/\d{2}/\d{2})/(?P<name>[^/]+)(?P<rest>/.+)?")
RunName = tuple[str, str]  # (table, index)


@dataclass(frozen=True, slots=True)
class Trashed:
    """One trash entry with its runs.

    Attributes:
        entry: the entry.
        runs: runs with paths in it.
    """

    entry: TrashEntry
    runs: tuple[RunName, ...]

    @property
    def title(self) -> str:
        """Date of its first run, and `+2` for two more; without runs the name of its first path."""
        if not self.runs:
            return os.path.basename(self.entry.moves[0][0]) if self.entry.moves else "-"
        more = f" +{len(self.runs) - 1}" if len(self.runs) > 1 else ""
        return short_name(self.runs[0][1]) + more

    @property
    def what(self) -> str:
        """Its kind; for a part of an item the file name; for several kinds the number of paths."""
        if len(self.entry.moves) == 1:
            match = _ITEM.fullmatch(self.entry.moves[0][0])
            if match is None or match["rest"]:
                return os.path.basename(self.entry.moves[0][0])
        kinds = dict.fromkeys(old.partition("/")[0] for old, _ in self.entry.moves)
        return f"{len(self.entry.moves)} path(s)" if len(kinds) > 1 else " ".join(kinds)


def trashed(data_root: Path) -> list[Trashed]:
    """All entries with their runs, oldest first."""
    found = []
    for entry in trash_entries(data_root):
        runs = dict.fromkeys(run for old, _ in entry.moves if (run := run_of(old)) is not None)
        found.append(Trashed(entry, tuple(sorted(runs))))
    return found


def run_of(path: str) -> RunName | None:
    """The run of a path relative to the data root; None if the path is not inside an item."""
    match = _ITEM.fullmatch(path)
    if match is None:
        return None
    name = match["name"]
    if match["kind"] == ARCHIVE_TESTER:
        name = archive_stem(name) or name
    return match["table"], f"{match['day']}/{name}"


def restore(data_root: Path, reference: str) -> int:
    """Restore an entry, or one run; the caller holds `changing`.

    Args:
        data_root: the database.
        reference: name of an entry, or a run's index or a part of it that matches no other run in the trash.

    Returns:
        How many paths came back.

    Raises:
        AmbiguousRunError: several runs match.
        DatabaseError: no entry or run matches, or a path is in use again; nothing was moved.
    """
    entries = trashed(data_root)
    if any(reference == one.entry.name for one in entries):
        return restore_trash(data_root, reference)
    names = sorted({run for one in entries for run in one.runs}, key=lambda run: run[1])
    found = match_runs(names, reference)
    if not found:
        message = f"the trash has no entry and no run {reference!r}; `rla trash` lists them"
        raise DatabaseError(message)
    if len(found) > 1:
        shown = "\n".join(f"  {table}/{index}" for table, index in found[-MAX_CANDIDATES_SHOWN:])
        message = (
            f"{len(found)} runs in the trash fit {reference!r}, give a longer part or the entry:\n{shown}"
        )
        raise AmbiguousRunError(message)
    holding = [one for one in entries if found[0] in one.runs][-1].entry
    moves = [move for move in holding.moves if run_of(move[0]) == found[0]]
    return restore_trash(data_root, holding.name, moves)
