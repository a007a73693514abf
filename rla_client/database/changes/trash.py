"""Trash of a database.

A trash entry is deleted by `empty_trash`, or by the first command that changes the database `TRASH_DAYS`
after its creation. It is renamed to `gone-<id>` first, so that a half-deleted entry is never listed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rla_client.contract.errors import DatabaseError, UnsafeNameError
from rla_client.contract.filesystem.safe_paths import discard, held_folder, open_folder
from rla_client.contract.safe_names import component_problem
from rla_client.database.changes.journal import (
    BASES,
    HIDDEN,
    Move,
    carry_out,
    hidden_base,
    read_entry,
    sorted_names,
    write_entry,
)
from rla_client.database.changes.live_runs import refuse_live
from rla_client.database.tree.items import Item
from rla_client.database.tree.sizes import item_bytes

TRASH_DAYS = 7.0


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """One removal that can still be undone.

    Attributes:
        name: its id, sortable by time.
        created: Unix seconds.
        moves: (old path, path in the trash), relative to the data root.
        bytes: size of the files in it.
    """

    name: str
    created: float
    moves: tuple[Move, ...]
    bytes: int


def move_to_trash(data_root: Path, items: Sequence[Item], now: float) -> str:
    """Move items into a new trash entry; the caller holds `changing`.

    Returns:
        Name of the entry.

    Raises:
        LiveRunError: a run is being written; nothing was moved.
        DatabaseError: an item is behind a link; nothing was moved.
        OSError: a rename failed; the next command that changes the database finishes the entry.
    """
    refuse_live(data_root, items, now)
    _refuse_links(data_root, items)
    name = f"{datetime.fromtimestamp(now):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"  # noqa: DTZ006 - for people
    moves = []
    for item in items:
        base = hidden_base(data_root, item.kind)
        for path in item.paths:
            relative = os.path.relpath(path, data_root)
            moves.append((relative, f"{base}/trash/{name}/items/{relative}"))
    folder = f"{HIDDEN}/trash/{name}"
    write_entry(data_root, folder, now, "moving", moves)
    carry_out(data_root, moves)
    write_entry(data_root, folder, now, "done", moves)
    return name


def _refuse_links(data_root: Path, items: Iterable[Item]) -> None:
    """Refuse items that are reached through a link below the data root.

    Raises:
        DatabaseError: an item is behind a link.
    """
    for folder in {
        os.path.relpath(os.path.dirname(path), data_root) for item in items for path in item.paths
    }:
        try:
            os.close(open_folder(data_root, folder))
        except FileNotFoundError:
            continue
        except (NotADirectoryError, UnsafeNameError) as error:
            message = f"{folder} is behind a link, and linked folders are not changed"
            raise DatabaseError(message) from error


def trash_entries(data_root: Path) -> list[TrashEntry]:
    """All entries, oldest first."""
    found = []
    for name in sorted_names(data_root, f"{HIDDEN}/trash"):
        entry = read_entry(data_root, f"{HIDDEN}/trash/{name}")
        if entry is not None and not name.startswith("gone-"):
            moves = entry.moves
            total = sum(item_bytes(Item("", "", "", (str(data_root / new),)))[0] for _, new in moves)
            found.append(TrashEntry(name, entry.created, moves, total))
    return sorted(found, key=lambda one: (one.created, one.name))


def restore_trash(data_root: Path, name: str, only: Sequence[Move] | None = None) -> int:
    """Move a trash entry back; the caller holds `changing`.

    Args:
        data_root: the database.
        name: of the entry.
        only: the moves to take back, None for all. The entry keeps the others. After a kill in between it
            still lists restored paths, which the next restore skips.

    Returns:
        Number of restored paths.

    Raises:
        DatabaseError: no such entry, or a path is in use again; nothing was moved.
    """
    folder = f"{HIDDEN}/trash/{name}"
    entry = read_entry(data_root, folder) if component_problem(name) is None else None
    if entry is None:
        message = f"the trash has no entry {name!r}; `rla trash` lists them"
        raise DatabaseError(message)
    back = [(new, old) for old, new in entry.moves if only is None or (old, new) in only]
    taken = [
        old for new, old in back if os.path.lexists(data_root / old) and os.path.lexists(data_root / new)
    ]
    if taken:
        message = f"{len(taken)} paths are taken, such as {taken[0]}; move them away first"
        raise DatabaseError(message)
    if len(back) < len(entry.moves):
        carry_out(data_root, back)
        left = [(old, new) for old, new in entry.moves if os.path.lexists(data_root / new)]
        write_entry(data_root, folder, entry.created, "done", left)
        return len(back)
    write_entry(data_root, folder, entry.created, "restoring", back)
    finish_restore(data_root, folder, entry.created, back)
    return len(back)


def finish_restore(data_root: Path, folder: str, created: float, back: Sequence[Move]) -> None:
    """Move back the remaining paths; those that are in use again by now stay in the entry."""
    carry_out(data_root, back)
    left = [(old, new) for new, old in back if os.path.lexists(data_root / new)]
    if left:
        write_entry(data_root, folder, created, "done", left)
    else:
        _delete_entry(data_root, os.path.basename(folder))


def empty_trash(data_root: Path, now: float, older_than_s: float = 0.0) -> int:
    """Delete trash entries permanently; the caller holds `changing`.

    Returns:
        Freed bytes.
    """
    freed = 0
    for entry in trash_entries(data_root):
        if now - entry.created >= older_than_s:
            freed += entry.bytes
            _delete_entry(data_root, entry.name)
    return freed


def _delete_entry(data_root: Path, name: str) -> None:
    for base in BASES:
        with suppress(FileNotFoundError, NotADirectoryError), held_folder(data_root, f"{base}/trash") as here:
            os.rename(here / name, here / f"gone-{name}")
        discard(data_root, f"{base}/trash", f"gone-{name}")
