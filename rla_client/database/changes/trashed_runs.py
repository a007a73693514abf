"""The runs in the trash.

`trash` moves paths and knows no runs: here an entry is shown by its runs, and a run comes back from the
newest entry that fits, as it may lie in several (one kind removed after another).
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
    """One entry, as it is listed.

    Attributes:
        entry: from `changes.trash_entries`.
        runs: the runs that it holds something of.
    """

    entry: TrashEntry
    runs: tuple[RunName, ...]

    @property
    def title(self) -> str:
        """Date of its run, `+2` behind it where there are more; else the name of what it holds."""
        if not self.runs:
            return os.path.basename(self.entry.moves[0][0]) if self.entry.moves else "-"
        more = f" +{len(self.runs) - 1}" if len(self.runs) > 1 else ""
        return short_name(self.runs[0][1]) + more

    @property
    def what(self) -> str:
        """The file, where it is a part of an item; else how many items."""
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
    """The run that a path relative to the data root belongs to; None for what is not an item."""
    match = _ITEM.fullmatch(path)
    if match is None:
        return None
    name = match["name"]
    if match["kind"] == ARCHIVE_TESTER:
        name = archive_stem(name) or name
    return match["table"], f"{match['day']}/{name}"


def restore(data_root: Path, reference: str) -> int:
    """Bring back an entry, or one run; the caller holds `changing`.

    Args:
        data_root: the database.
        reference: name of an entry, or a run's index or a part of it that fits no other in the trash.

    Returns:
        How many paths came back.

    Raises:
        AmbiguousRunError: several runs fit.
        DatabaseError: none does, or something stands in the place of an item; nothing was moved.
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
