"""Database of a command."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.cli.output import say_aside
from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import ARCHIVE_TESTER, ARCHIVED_TABLE, HYPARAMETER, LOG
from rla_client.database.tree.data_root import (
    SEARCH_DEPTH,
    NoRunsYetError,
    find_data_root,
    is_data_root,
    roots_below,
)

if TYPE_CHECKING:
    from rla_client.database.database import Database


MANY = 300  # runs to read at which progress is shown


def open_database(data_root: Path | None, *, archived: bool = False, new: bool = False) -> Database:
    """The database of a command.

    Args:
        data_root: the given folder; None searches from the working folder.
        archived: open the archive of the database instead.
        new: for a command that adds runs: accept an empty folder, and create a missing one if its parent
            exists.

    Raises:
        NoRunsYetError: the database, or its archive, has no runs yet.
        DatabaseError: there is no database, or several.
    """
    from rla_client.database.database import Database

    if data_root is None:
        data_root = find_data_root(Path.cwd(), new=new)
    if new and not data_root.exists() and data_root.absolute().parent.is_dir():
        data_root.mkdir(exist_ok=True)
        say_aside(f"{data_root} is a new database")
    database = Database(data_root)
    if not new:
        _check_holds_database(database.data_root)
    if archived:
        if not (database.data_root / ARCHIVED_TABLE).is_dir():
            raise NoRunsYetError(
                f"nothing is archived yet in {database.data_root}; `rla archive RUN` copies runs there"
            )
        database = database.archived
    if sys.stderr.isatty():
        database.progress = _progress
    return database


def _check_holds_database(folder: Path) -> None:
    """Raise DatabaseError for a folder that is no database; its hint names one nearby."""
    if any((folder / name).is_dir() for name in (LOG, ARCHIVE_TESTER, HYPARAMETER, ARCHIVED_TABLE)):
        return
    near = [parent for parent in folder.parents if is_data_root(parent)][:1]
    with suppress(OSError):  # no permission to list the folder
        near = near or roots_below(folder, SEARCH_DEPTH)
    advice = f"--data-root {near[0]}" if len(near) == 1 else "give the folder that holds log/"
    raise DatabaseError(f"{folder} holds no database\nhint: {advice}")


def _progress(done: int, total: int) -> None:
    if total >= MANY:
        end = "\n" if done + 500 >= total else ""
        print(f"\rreading {done} of {total} runs…", end=end, file=sys.stderr, flush=True)  # noqa: T201


def held(data_root: Path) -> AbstractContextManager[None]:
    """Lock a database for a change, with a message while another command holds the lock."""
    from rla_client.database.changes.change_lock import changing
    from rla_client.database.clock import clock

    waiting = "waiting for another rla command that changes this database…"
    return changing(data_root, clock(), lambda: say_aside(waiting))
