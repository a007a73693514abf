"""Whether something may be sent into an item: not where it was moved, never where it was deleted on purpose.

`rla rm --master` leaves a tombstone on the master for each item folder that it takes away (for the
archive's files: for each stem): `.rla/tombstones/<first 40 digits of the SHA-256 of its path>.json`, which
says what, when, and by whom. Every agent asks for it before it makes an item there, and when an item that
it made is gone: so neither the node that sent it, nor one that holds a copy, sends it again. A
tombstone that is taken away, with a removal (`transfer trash --restore`) or alone (`transfer allow`), allows
it again, on other machines after `rla-agent replicate retry`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate.backend.target import MissingError, RemoteStat, Session, SmallFile, TargetError
from rla_client.contract.layout import ARCHIVE_TESTER

if TYPE_CHECKING:
    from rla_agent.replicate.ledger.rows import Due

FOLDER: Final = b".rla/tombstones"
SHARED_MODE: Final = 0o644  # other users' agents are not to send the item either
ARCHIVE_ENDINGS: Final = (b".json", b".pt", b".pkl")
MAX_TOMBSTONE_BYTES: Final = 64 << 10
_NAME_DIGITS: Final = 40
BURIED: Final = 4  # the ledger's state


class MovedError(TargetError):
    """The item's folder, which we made, is no longer on the master."""


class BuriedError(TargetError):
    """The item was deleted on the master on purpose. `subject` is what the tombstone is for."""

    def __init__(self, subject: bytes) -> None:
        self.subject = subject
        super().__init__(
            "send",
            subject,
            "deleted on the master by `rla rm --master`",
            "see: rla-agent transfer trash; or: transfer allow",
        )


def subject_of(kind: str, item: bytes, path: bytes) -> bytes:
    """What a file's tombstone is for: its item's folder, or the stem of an archive's file."""
    if kind != ARCHIVE_TESTER:
        return item
    for ending in ARCHIVE_ENDINGS:
        if path.endswith(ending):
            return path.removesuffix(ending)
    return path


def tombstone_path(subject: bytes) -> bytes:
    """Where the tombstone of an item lies on the master."""
    return FOLDER + b"/" + hashlib.sha256(subject).hexdigest()[:_NAME_DIGITS].encode() + b".json"


def is_buried(session: Session, subject: bytes) -> bool:
    """Whether there is a tombstone."""
    return session.stat(tombstone_path(subject)) is not None


def place_problem(session: Session, due: Due) -> TargetError | None:
    """Why nothing may be sent into a file's item, None where it may.

    Raises:
        TargetError: the master does not answer.
    """
    shared = due.kind == ARCHIVE_TESTER  # its folder holds the archives of all runs of a day
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


def leave_tombstones(session: Session, subjects: Iterable[bytes], about: dict[str, Any]) -> None:
    """Put tombstones on the master; those that are there stay.

    Args:
        session: at the master.
        subjects: item folders, archive stems.
        about: who and why, plain data.

    Raises:
        TargetError: one could not be put.
    """
    session.make_folders([FOLDER])
    present = {FOLDER + b"/" + name for name, _ in session.listing(FOLDER)}
    now = int(time.time())
    files = []
    for subject in subjects:
        path = tombstone_path(subject)
        if path in present:
            continue
        content = {"format": 1, "item": os.fsdecode(subject), "at": now, **about}
        temp = FOLDER + b"/.rla-tmp-" + secrets.token_hex(8).encode()
        text = json.dumps(content, indent=1).encode()
        files.append(SmallFile(path, temp, text, now, None, lambda: True, mode=SHARED_MODE))
    for result in session.put_many(files) if files else ():
        if not isinstance(result, RemoteStat):
            raise result


def drop_tombstones(session: Session, subjects: Iterable[bytes]) -> int:
    """Take tombstones away; how many there were.

    Raises:
        TargetError: the master refuses or is away.
    """
    found = [tombstone_path(subject) for subject in subjects if is_buried(session, subject)]
    for path in found:
        session.remove(path)
    return len(found)


def take_tombstones(
    session: Session, subjects: Iterable[bytes], perhaps: Iterable[bytes], *, trash: str
) -> None:
    """Take tombstones away; others, of which there may be very many, are not looked at.

    Args:
        session: at the master.
        subjects: whose tombstones go.
        perhaps: whose tombstones go if they came with the trash entry `trash`.
        trash: name of a trash entry.

    Raises:
        TargetError: the master refuses or is away.
    """
    gone = set(subjects)
    for subject in gone:
        session.remove(tombstone_path(subject))
    for subject in set(perhaps) - gone:
        path = tombstone_path(subject)
        try:
            about = json.loads(session.read(path, 0, MAX_TOMBSTONE_BYTES))
        except (MissingError, ValueError, RecursionError):
            continue
        if isinstance(about, dict) and about.get("trash") == trash:
            session.remove(path)


def bury(db: sqlite3.Connection, number: int, subject: bytes) -> None:
    """Note in the ledger that nothing of an item goes any more; the caller commits."""
    folder, _, stem = subject.rpartition(b"/")
    if subject.startswith((ARCHIVE_TESTER.encode() + b"/", b"arc/" + ARCHIVE_TESTER.encode() + b"/")):
        names = [stem, *(stem + ending for ending in ARCHIVE_ENDINGS)]
        db.execute(
            "UPDATE files SET state = ?, reason = NULL, mend = NULL WHERE folder = "  # noqa: S608 - places only
            f"(SELECT id FROM folders WHERE db = ? AND path = ?) AND name IN ({', '.join('?' * len(names))})",
            (BURIED, number, folder, *names),
        )
        return
    db.execute(
        "UPDATE files SET state = ?, reason = NULL, mend = NULL WHERE folder IN "
        "(SELECT id FROM folders WHERE db = ? AND item = ?)",
        (BURIED, number, subject),
    )
