"""The master's trash: `rla rm --master` moves items there, whole; nothing is deleted by that.

It is laid out as the trash of a database of ours (`rla_client.database.changes`), so that `rla trash` on
the master shows, restores and empties it too:

    .rla/trash/<id>/entry.json   {"format": 1, "created": s, "state": …, "moves": [[from, to], …]}
    .rla/trash/<id>/items/…      the moved folders and files, under their paths

In this order: tombstones, so that nobody sends it again; the entry in state `moving`; the renames, each
atomic on the master; a second look, for what an agent made in between; the entry in state `done`. Cut
off anywhere, the same command does the rest, and `rla` on the master too.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rla_agent.replicate.backend.target import MissingError, RemoteStat, Session, SmallFile, TargetError
from rla_agent.replicate.ledger import tombstones
from rla_agent.replicate.ledger.ledger import ledger_path, upgrade
from rla_agent.replicate.worker.scan import MAX_RUN_JSON_BYTES, heard_s_ago
from rla_client.contract.errors import ArgumentError, LiveRunError, RlaError
from rla_client.contract.layout import ARCHIVE_TESTER, DEFAULT_LOG_TYPES, LOG, RunIndex, check_relative

TRASH: Final = b".rla/trash"
MAX_ENTRY_BYTES: Final = 64 << 20
MAX_DEPTH: Final = 64
Move = tuple[bytes, bytes]


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
    """Move runs to the master's trash and leave tombstones.

    Args:
        session: at the master.
        items: `table/YYYY/MM/DD/name`.
        kinds: data kinds.
        about: for the tombstones, plain data.
        now: Unix seconds.

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
    tombstones.leave_tombstones(session, subjects, {**about, "trash": name})
    moves = _moves(session, subjects, base)
    if not moves:
        return Entry(name, now, ())
    session.make_folders([base])
    _write_entry(session, base, now, ("moving", moves))
    _carry_out(session, moves)
    late = [move for move in _moves(session, subjects, base + b"/late") if move[0]]
    _carry_out(session, late)
    moves += late
    _write_entry(session, base, now, ("done", moves))
    return Entry(name, now, tuple(moves))


def _refuse_live(session: Session, item: str, now: float) -> None:
    try:
        run = json.loads(session.read(os.fsencode(f"{LOG}/{item}/run.json"), 0, MAX_RUN_JSON_BYTES))
    except (MissingError, ValueError, RecursionError):
        return
    if heard_s_ago(run, now) is not None:
        raise LiveRunError(f"{item} is being written on {run.get('host')}; stop it first")


def _moves(session: Session, subjects: Iterable[bytes], base: bytes) -> list[Move]:
    """What is there of these items, and where it goes."""
    found = []
    for subject in subjects:
        endings: tuple[bytes, ...] = (b"",)
        if subject.startswith(ARCHIVE_TESTER.encode() + b"/"):
            endings = tombstones.ARCHIVE_ENDINGS
        for ending in endings:
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


def _write_entry(session: Session, base: bytes, created: float, content: tuple[str, list[Move]]) -> None:
    state, moves = content
    listed = [[os.fsdecode(old), os.fsdecode(new)] for old, new in moves]
    text = json.dumps({"format": 1, "created": created, "state": state, "moves": listed}, indent=1)
    path, temp = base + b"/entry.json", base + b"/.rla-tmp-entry-" + secrets.token_hex(4).encode()
    file = SmallFile(
        path, temp, text.encode(), int(time.time()), session.stat(path), lambda: True, mode=0o644
    )
    (result,) = session.put_many([file])
    if not isinstance(result, RemoteStat):
        raise result


def entries(session: Session) -> list[Entry]:
    """What lies in the master's trash, oldest first; what is not an entry is left out."""
    try:
        names = sorted(name for name, state in session.listing(TRASH) if state.kind == "folder")
    except MissingError:
        return []
    found = []
    for name in names:
        try:
            plain = json.loads(session.read(TRASH + b"/" + name + b"/entry.json", 0, MAX_ENTRY_BYTES))
            moves = tuple((os.fsencode(old), os.fsencode(new)) for old, new in plain["moves"])
            found.append(Entry(os.fsdecode(name), float(plain["created"]), moves))
        except (MissingError, ValueError, KeyError, TypeError, RecursionError):
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
    there = [(new, old) for old, new in entry.moves if _below(new, base) and session.stat(new) is not None]
    back = {old: new for new, old in reversed(there)}  # of two the earlier: the later was a new beginning
    for old in back:
        if session.stat(old) is not None:
            raise ArgumentError(f"{os.fsdecode(old)} is taken on the master; move it away first")
    _carry_out(session, [(new, old) for old, new in back.items()])
    subjects = {_subject(old) for old, _ in entry.moves}
    items = {os.fsdecode(subject).partition("/")[2] for subject in subjects}
    tombstones.take_tombstones(
        session, subjects, subjects_of(items), trash=name
    )  # also of kinds without data
    if len(back) == len(there):
        _delete(session, base, 0)
    return entry


def _below(path: bytes, base: bytes) -> bool:
    return path.startswith((base + b"/items/", base + b"/late/items/"))


def _subject(path: bytes) -> bytes:
    kind = os.fsdecode(path.split(b"/", 1)[0])
    return tombstones.subject_of(kind, path, path)


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
                    tombstones.bury(db, number, subject)
            db.commit()
    except sqlite3.Error as error:
        raise RlaError(f"the ledger {path} cannot be written: {error}") from error
