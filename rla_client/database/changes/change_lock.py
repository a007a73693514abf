"""Lock of a database change.

A command that is killed before its journal entry is written has changed nothing: staged copies without an
entry are deleted. After a kill later on, the next command that takes `<data_root>/.rla/lock` (flock)
finishes the renames.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rla_client.contract.errors import DatabaseError, UnsafeNameError
from rla_client.contract.filesystem.safe_paths import discard, held_folder
from rla_client.contract.process.locks import try_lock, wait_for_lock
from rla_client.database.changes.journal import (
    BASES,
    ENTRY,
    HIDDEN,
    carry_out,
    read_entry,
    sorted_names,
    write_entry,
)
from rla_client.database.changes.trash import TRASH_DAYS, empty_trash, finish_restore


@contextmanager
def changing(data_root: Path, now: float, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Lock the database for a change; first finishes changes of killed commands and deletes old trash.

    Args:
        data_root: the database.
        now: Unix seconds.
        waiting: called once if another command holds the lock.

    Raises:
        DatabaseError: the data root cannot be written.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with held_folder(data_root, HIDDEN, create=True) as hidden:
            descriptor = os.open(hidden / "lock", flags, 0o666)
    except OSError as error:
        message = f"{data_root} cannot be changed: {error.strerror or error}"
        raise DatabaseError(message) from error
    try:
        if not try_lock(descriptor):
            if waiting is not None:
                waiting()
            wait_for_lock(descriptor)
        _recover(data_root, now)
        yield
    finally:
        os.close(descriptor)


def _recover(data_root: Path, now: float) -> None:
    held_up = set()
    for kind in ("trash", "copies"):
        for name in sorted_names(data_root, f"{HIDDEN}/{kind}"):
            try:
                _finish(data_root, f"{HIDDEN}/{kind}/{name}")
            except (NotADirectoryError, IsADirectoryError, UnsafeNameError):
                held_up.add(name)  # a link or a file in the way of this entry must not block the others
    for base in BASES:
        for name in set(sorted_names(data_root, f"{base}/copies")) - held_up:
            discard(data_root, f"{base}/copies", name)
        for name in filter(lambda name: name.startswith("gone-"), sorted_names(data_root, f"{base}/trash")):
            discard(data_root, f"{base}/trash", name)
    for name in sorted_names(data_root, f"{HIDDEN}/trash"):
        if not os.path.lexists(data_root / HIDDEN / "trash" / name / ENTRY):
            discard(data_root, f"{HIDDEN}/trash", name)
    empty_trash(data_root, now, TRASH_DAYS * 86400)


def _finish(data_root: Path, folder: str) -> None:
    """Finish the change of one entry that a killed command left."""
    entry = read_entry(data_root, folder)
    if entry is None or os.path.basename(folder).startswith("gone-"):
        return
    if entry.state == "moving":
        carry_out(data_root, entry.moves)
        if folder.startswith(f"{HIDDEN}/trash/"):
            write_entry(data_root, folder, entry.created, "done", entry.moves)
    elif entry.state == "restoring":
        finish_restore(data_root, folder, entry.created, entry.moves)
