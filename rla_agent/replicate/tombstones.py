"""Tombstones on the master that keep deleted items from being sent again.

There is one for each removed item folder (for the archive's files: for each stem):
`.rla/tombstones/<first 40 digits of the SHA-256 of its path>.json` says what was removed, when, and by whom.
Every agent looks for it before it makes an item there, and when an item that it made is missing: so neither
the node that sent it, nor one with a copy, sends it again. Deleting a tombstone, with its removal
(`transfer trash --restore`) or alone (`transfer allow`), allows the item again, on other machines after
`rla-agent replicate retry`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate.backend.errors import TargetError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession, read_json
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.ledger import ARCHIVE_ENDINGS, burial
from rla_agent.replicate.ledger_schema import ledger_path, upgrade
from rla_client.contract.errors import RlaError
from rla_client.contract.layout import ARCHIVE_TESTER, DEFAULT_LOG_TYPES

if TYPE_CHECKING:
    from rla_agent.replicate.ledger_rows import Due


TOMBSTONES: Final = b".rla/tombstones"
SHARED_MODE: Final = 0o644  # other users' agents are not to send the item either
MAX_TOMBSTONE_BYTES: Final = 64 << 10
_NAME_DIGITS: Final = 40


class MovedError(TargetError):
    """The item's folder, which we made, is no longer on the master."""


class BuriedError(TargetError):
    """The item was deleted on the master on purpose. `subject` is that of its tombstone."""

    def __init__(self, subject: bytes) -> None:
        self.subject = subject
        super().__init__(
            "send",
            subject,
            "deleted on the master by `rla rm --master`",
            "see: rla-agent transfer trash; or: transfer allow",
        )


def subject_of(kind: str, item: bytes, path: bytes) -> bytes:
    """Subject of a file's tombstone: its item's folder, or the stem of an archive's file."""
    if kind != ARCHIVE_TESTER:
        return item
    for ending in ARCHIVE_ENDINGS:
        if path.endswith(ending):
            return path.removesuffix(ending)
    return path


def tombstone_path(subject: bytes) -> bytes:
    """Path of an item's tombstone on the master."""
    return TOMBSTONES + b"/" + hashlib.sha256(subject).hexdigest()[:_NAME_DIGITS].encode() + b".json"


def is_buried(session: TargetSession, subject: bytes) -> bool:
    """Whether there is a tombstone."""
    return session.stat(tombstone_path(subject)) is not None


def place_problem(session: TargetSession, due: Due) -> TargetError | None:
    """Why nothing may be sent into a file's item; None where it may.

    Raises:
        TargetError: the master does not answer.
    """
    shared = due.kind == ARCHIVE_TESTER  # its folder has the archives of all runs of a day
    if due.item_made and not shared and session.stat(due.item) is not None:
        return None
    subject = subject_of(due.kind, due.item, due.path)
    if is_buried(session, subject):
        return BuriedError(subject)
    if due.item_made and (not shared or session.stat(due.item) is None):
        return MovedError(
            "send",
            due.item,
            "moved on master: the item's folder is gone",
            "to send it again: rla-agent replicate retry",
        )
    return None


def leave_tombstones(session: TargetSession, subjects: Iterable[bytes], about: dict[str, Any]) -> None:
    """Put tombstones of item folders and archive stems on the master; existing ones stay.

    `about`: who and why, plain data.

    Raises:
        TargetError: one could not be put.
    """
    session.make_folders([TOMBSTONES])
    present = {TOMBSTONES + b"/" + name for name, _ in session.listing(TOMBSTONES)}
    now = int(time.time())
    files = []
    for subject in subjects:
        path = tombstone_path(subject)
        if path in present:
            continue
        content = {"format": 1, "item": os.fsdecode(subject), "at": now, **about}
        temp = TOMBSTONES + b"/.rla-tmp-" + secrets.token_hex(8).encode()
        text = json.dumps(content, indent=1).encode()
        files.append(SmallFile(path, temp, text, now, None, lambda: True, mode=SHARED_MODE))
    for result in session.put_many(files) if files else ():
        if not isinstance(result, RemoteStat):
            raise result


def drop_tombstones(session: TargetSession, subjects: Iterable[bytes]) -> int:
    """Delete tombstones; returns how many there were.

    Raises:
        TargetError: the master refuses or is away.
    """
    found = [tombstone_path(subject) for subject in subjects if is_buried(session, subject)]
    for path in found:
        session.remove(path)
    return len(found)


def take_tombstones(
    session: TargetSession, subjects: Iterable[bytes], perhaps: Iterable[bytes], *, trash: str
) -> None:
    """Delete the tombstones of `subjects`, and of `perhaps` those that came with the trash entry `trash`.

    Others, of which there may be very many, are not read.

    Raises:
        TargetError: the master refuses or is away.
    """
    gone = set(subjects)
    for subject in gone:
        session.remove(tombstone_path(subject))
    for subject in set(perhaps) - gone:
        path = tombstone_path(subject)
        about = read_json(session, path, MAX_TOMBSTONE_BYTES)
        if isinstance(about, dict) and about.get("trash") == trash:
            session.remove(path)


def subjects_of(items: Iterable[str], kinds: Sequence[str] = DEFAULT_LOG_TYPES) -> list[bytes]:
    """Subjects of the tombstones of these runs."""
    return [os.fsencode(f"{kind}/{item}") for item in items for kind in kinds]


def bury_here(state: Path, root: str, target: str, subjects: Iterable[bytes]) -> None:
    """Stop sending these items, in this machine's ledger if it has one.

    Raises:
        RlaError: the ledger cannot be written; the tombstones on the master do the same.
    """
    path = ledger_path(state)
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, timeout=30.0)) as db:
            upgrade(db, state)
            roots = [os.fsencode(os.path.realpath(root)), os.fsencode(os.path.abspath(root))]
            rows = db.execute(
                "SELECT id FROM databases WHERE root IN (?, ?) AND target = ?", (*roots, target)
            ).fetchall()
            for subject in subjects:
                for (number,) in rows:
                    db.execute(*burial(number, subject))
            db.commit()
    except sqlite3.Error as error:
        raise RlaError(f"the ledger {path} cannot be written: {error}") from error
