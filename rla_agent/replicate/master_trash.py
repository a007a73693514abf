"""What is deleted on the master on purpose: its trash, and the tombstones that keep items from coming back.

`rla rm --master` moves items to the master's trash, whole; nothing is deleted by that.

The trash is laid out as that of a database of ours (`rla_client.database.changes`), so that `rla trash` on
the master shows, restores and empties it too:

    .rla/trash/<id>/entry.json   {"format": 1, "created": s, "state": …, "moves": [[from, to], …]}
    .rla/trash/<id>/items/…      the moved folders and files, under their paths

In this order: tombstones, so that nobody sends it again; the entry in state `moving`; the renames, each
atomic on the master; a second look, for what an agent made in between; the entry in state `done`. Cut
off anywhere, the same command does the rest, and `rla` on the master too.

A tombstone stays on the master for each item folder that was taken away (for the archive's files: for each
stem): `.rla/tombstones/<first 40 digits of the SHA-256 of its path>.json` says what, when, and by whom.
Every agent asks for it before it makes an item there, and when an item that it made is gone: so neither the
node that sent it, nor one that holds a copy, sends it again. A tombstone that is taken away, with a removal
(`transfer trash --restore`) or alone (`transfer allow`), allows it again, on other machines after
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
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rla_agent.replicate.backend.target import (
    MissingError,
    RemoteStat,
    Session,
    SmallFile,
    TargetError,
    listing_or_empty,
    read_json,
)
from rla_agent.replicate.ledger import ARCHIVE_ENDINGS, burial, ledger_path, upgrade
from rla_agent.replicate.worker.source import MAX_DEPTH, MAX_RUN_JSON_BYTES, heard_s_ago
from rla_client.contract.errors import ArgumentError, LiveRunError, RlaError
from rla_client.contract.layout import ARCHIVE_TESTER, DEFAULT_LOG_TYPES, LOG
from rla_client.contract.run_index import RunIndex
from rla_client.contract.safe_names import check_relative

if TYPE_CHECKING:
    from rla_agent.replicate.ledger import Due

TOMBSTONES: Final = b".rla/tombstones"
SHARED_MODE: Final = 0o644  # other users' agents are not to send the item either
MAX_TOMBSTONE_BYTES: Final = 64 << 10
_NAME_DIGITS: Final = 40
TRASH: Final = b".rla/trash"
MAX_ENTRY_BYTES: Final = 64 << 20
Move = tuple[bytes, bytes]


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
    return TOMBSTONES + b"/" + hashlib.sha256(subject).hexdigest()[:_NAME_DIGITS].encode() + b".json"


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
    """Put tombstones of item folders and archive stems on the master; those that are there stay.

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
    """Take the tombstones of `subjects` away, and of `perhaps` those that came with the trash entry `trash`.

    Others, of which there may be very many, are not looked at.

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


@dataclass(frozen=True, slots=True)
class Entry:
    """One removal. `moves`: (old path, path in the trash)."""

    name: str
    created: float
    moves: tuple[Move, ...]


def check_item(item: str) -> str:
    """`table/YYYY/MM/DD/name`, or an error.

    Raises:
        ArgumentError: it is none.
    """
    parts = check_relative(item, what="the run")
    if RunIndex.parse("/".join(parts[-4:])) is None or len(parts) < 5:  # noqa: PLR2004 - table and index
        raise ArgumentError(f"{item!r} names no run; write table/YYYY/MM/DD/name")
    return item


def subjects_of(items: Iterable[str], kinds: Sequence[str] = DEFAULT_LOG_TYPES) -> list[bytes]:
    """What tombstones of these runs are for."""
    return [os.fsencode(f"{kind}/{item}") for item in items for kind in kinds]


def move_to_trash(
    session: Session, items: Sequence[str], kinds: Sequence[str], about: dict[str, Any], now: float
) -> Entry:
    """Move runs (`table/YYYY/MM/DD/name`) to the master's trash and leave tombstones.

    `about`: for the tombstones, plain data; `now`: Unix seconds.

    Returns:
        What was moved; without moves the master had nothing of them.

    Raises:
        LiveRunError: one is being written, as far as its run.json there says; nothing was done.
        TargetError: the master refuses or is away; run it again.
    """
    for item in items:
        _refuse_live(session, check_item(item), now)
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now))}-{secrets.token_hex(3)}"
    base = TRASH + b"/" + name.encode()
    subjects = subjects_of(items, kinds)
    leave_tombstones(session, subjects, {**about, "trash": name})
    moves = _moves(session, subjects, base)
    if not moves:
        return Entry(name, now, ())
    session.make_folders([base])
    _write_entry(session, base, now, "moving", moves)
    _carry_out(session, moves)
    late = [move for move in _moves(session, subjects, base + b"/late") if move[0]]
    _carry_out(session, late)
    moves += late
    _write_entry(session, base, now, "done", moves)
    return Entry(name, now, tuple(moves))


def _refuse_live(session: Session, item: str, now: float) -> None:
    run = read_json(session, os.fsencode(f"{LOG}/{item}/run.json"), MAX_RUN_JSON_BYTES)
    if heard_s_ago(run, now) is not None:
        raise LiveRunError(f"{item} is being written on {run.get('host')}; stop it first")


def _moves(session: Session, subjects: Iterable[bytes], base: bytes) -> list[Move]:
    """What is there of these items, and where it goes."""
    found = []
    for subject in subjects:
        archived = subject.startswith(ARCHIVE_TESTER.encode() + b"/")
        for ending in ARCHIVE_ENDINGS if archived else (b"",):
            path = subject + ending
            if session.stat(path) is not None:
                found.append((path, base + b"/items/" + path))
    return found


def _carry_out(session: Session, moves: Sequence[Move]) -> None:
    session.make_folders(list(dict.fromkeys(new.rpartition(b"/")[0] for _, new in moves)))
    for old, new in moves:
        with suppress(MissingError):  # an earlier try
            session.rename(old, new)
    session.forget_folders()


def _write_entry(session: Session, base: bytes, created: float, state: str, moves: Sequence[Move]) -> None:
    listed = [[os.fsdecode(old), os.fsdecode(new)] for old, new in moves]
    text = json.dumps({"format": 1, "created": created, "state": state, "moves": listed}, indent=1)
    path, temp = base + b"/entry.json", base + b"/.rla-tmp-entry-" + secrets.token_hex(4).encode()
    now, there = int(time.time()), session.stat(path)
    entry = SmallFile(path, temp, text.encode(), now, there, lambda: True, mode=SHARED_MODE)
    (result,) = session.put_many([entry])
    if not isinstance(result, RemoteStat):
        raise result


def entries(session: Session) -> list[Entry]:
    """What lies in the master's trash, oldest first; what is not an entry is left out."""
    names = sorted(name for name, state in listing_or_empty(session, TRASH) if state.kind == "folder")
    found = []
    for name in names:
        plain = read_json(session, TRASH + b"/" + name + b"/entry.json", MAX_ENTRY_BYTES)
        try:
            moves = tuple((os.fsencode(old), os.fsencode(new)) for old, new in plain["moves"])
            found.append(Entry(os.fsdecode(name), float(plain["created"]), moves))
        except (ValueError, KeyError, TypeError):
            continue
    return found


def restore(session: Session, name: str) -> Entry:
    """Move an entry back to where it was, and take its tombstones away.

    Raises:
        ArgumentError: no such entry, or something has taken a place; nothing was moved.
        TargetError: the master refuses or is away; run it again.
    """
    entry = next((one for one in entries(session) if one.name == name), None)
    if entry is None:
        raise ArgumentError(f"the master's trash has no entry {name!r}; see: rla-agent transfer trash")
    base = TRASH + b"/" + os.fsencode(name)
    within = (base + b"/items/", base + b"/late/items/")
    there = [
        (new, old) for old, new in entry.moves if new.startswith(within) and session.stat(new) is not None
    ]
    back = {old: new for new, old in reversed(there)}  # of two the earlier: the later was a new beginning
    for old in back:
        if session.stat(old) is not None:
            raise ArgumentError(f"{os.fsdecode(old)} is taken on the master; move it away first")
    _carry_out(session, [(new, old) for old, new in back.items()])
    subjects = {subject_of(os.fsdecode(old.partition(b"/")[0]), old, old) for old, _ in entry.moves}
    items = {os.fsdecode(subject).partition("/")[2] for subject in subjects}
    take_tombstones(session, subjects, subjects_of(items), trash=name)  # also of kinds without data
    if len(back) == len(there):
        _delete(session, base, 0)
    return entry


def empty(session: Session, older_than_s: float, now: float) -> int:
    """Delete entries for good; tombstones stay. Returns how many."""
    count = 0
    for entry in entries(session):
        if now - entry.created >= older_than_s:
            _delete(session, TRASH + b"/" + os.fsencode(entry.name), 0)
            count += 1
    return count


def _delete(session: Session, path: bytes, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise TargetError("delete", path, f"it has nested more than {MAX_DEPTH} folders deep")
    try:
        inside = session.listing(path)
    except MissingError:
        return
    for name, state in sorted(inside, key=lambda pair: pair[0] == b"entry.json"):
        if state.kind == "folder":
            _delete(session, path + b"/" + name, depth + 1)
        else:
            session.remove(path + b"/" + name)
    session.remove_folder(path)


def bury_here(state: Path, root: str, target: str, subjects: Iterable[bytes]) -> None:
    """Note in this machine's ledger, if it has one, that nothing of these items goes any more.

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
