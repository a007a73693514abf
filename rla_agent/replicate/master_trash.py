"""Trash of the master.

`rla rm --master` moves complete items there and deletes nothing. Its layout is that of a local database's
trash (`rla_client.database.changes`), so that `rla trash` on the master lists, restores and empties it too:

    .rla/trash/<id>/entry.json   {"format": 1, "created": s, "state": …, "moves": [[from, to], …]}
    .rla/trash/<id>/items/…      the moved folders and files, under their paths

The steps: tombstones, so that nobody sends it again; the entry in state `moving`; the renames, each atomic on
the master; a second listing, for files that an agent made in between; the entry in state `done`. After an
interruption at any step the same command, or `rla` on the master, does the rest.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rla_agent.replicate.backend.errors import MissingError, TargetError
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession, listing_or_empty, read_json
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.ledger import ARCHIVE_ENDINGS
from rla_agent.replicate.tombstones import (
    SHARED_MODE,
    leave_tombstones,
    subject_of,
    subjects_of,
    take_tombstones,
)
from rla_agent.replicate.worker.run_json import MAX_RUN_JSON_BYTES, heard_s_ago
from rla_agent.replicate.worker.scan import MAX_DEPTH
from rla_client.contract.errors import ArgumentError, LiveRunError
from rla_client.contract.layout import ARCHIVE_TESTER, LOG
from rla_client.contract.run_index import RunIndex
from rla_client.contract.safe_names import check_relative

TRASH: Final = b".rla/trash"
MAX_ENTRY_BYTES: Final = 64 << 20
Move = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class MasterTrashEntry:
    """One removal. `moves`: (old path, path in the trash)."""

    name: str
    created: float
    moves: tuple[Move, ...]


def check_item(item: str) -> str:
    """Check that an item is of the form `table/YYYY/MM/DD/name`.

    Raises:
        ArgumentError: it is none.
    """
    parts = check_relative(item, what="the run")
    if RunIndex.parse("/".join(parts[-4:])) is None or len(parts) < 5:  # noqa: PLR2004 - table and index
        raise ArgumentError(f"{item!r} names no run; write table/YYYY/MM/DD/name")
    return item


def move_to_trash(
    session: TargetSession, items: Sequence[str], kinds: Sequence[str], about: dict[str, Any], now: float
) -> MasterTrashEntry:
    """Move runs (`table/YYYY/MM/DD/name`) to the master's trash and leave tombstones.

    `about`: for the tombstones, plain data; `now`: Unix seconds.

    Returns:
        The removal; without moves the master had nothing of them.

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
        return MasterTrashEntry(name, now, ())
    session.make_folders([base])
    _write_entry(session, base, now, "moving", moves)
    _carry_out(session, moves)
    late = [move for move in _moves(session, subjects, base + b"/late") if move[0]]
    _carry_out(session, late)
    moves += late
    _write_entry(session, base, now, "done", moves)
    return MasterTrashEntry(name, now, tuple(moves))


def _refuse_live(session: TargetSession, item: str, now: float) -> None:
    run = read_json(session, os.fsencode(f"{LOG}/{item}/run.json"), MAX_RUN_JSON_BYTES)
    if heard_s_ago(run, now) is not None:
        raise LiveRunError(f"{item} is being written on {run.get('host')}; stop it first")


def _moves(session: TargetSession, subjects: Iterable[bytes], base: bytes) -> list[Move]:
    """The renames for all that is there of these items."""
    moves = []
    for subject in subjects:
        archived = subject.startswith(ARCHIVE_TESTER.encode() + b"/")
        for ending in ARCHIVE_ENDINGS if archived else (b"",):
            path = subject + ending
            if session.stat(path) is not None:
                moves.append((path, base + b"/items/" + path))
    return moves


def _carry_out(session: TargetSession, moves: Sequence[Move]) -> None:
    session.make_folders(list(dict.fromkeys(new.rpartition(b"/")[0] for _, new in moves)))
    for old, new in moves:
        with suppress(MissingError):  # an earlier try
            session.rename(old, new)
    session.forget_folders()


def _write_entry(
    session: TargetSession, base: bytes, created: float, state: str, moves: Sequence[Move]
) -> None:
    listed = [[os.fsdecode(old), os.fsdecode(new)] for old, new in moves]
    text = json.dumps({"format": 1, "created": created, "state": state, "moves": listed}, indent=1)
    path, temp = base + b"/entry.json", base + b"/.rla-tmp-entry-" + secrets.token_hex(4).encode()
    now, there = int(time.time()), session.stat(path)
    entry = SmallFile(path, temp, text.encode(), now, there, lambda: True, mode=SHARED_MODE)
    (result,) = session.put_many([entry])
    if not isinstance(result, RemoteStat):
        raise result


def entries(session: TargetSession) -> list[MasterTrashEntry]:
    """Entries of the master's trash, oldest first; other files are skipped."""
    names = sorted(name for name, state in listing_or_empty(session, TRASH) if state.kind == "folder")
    trash = []
    for name in names:
        plain = read_json(session, TRASH + b"/" + name + b"/entry.json", MAX_ENTRY_BYTES)
        try:
            moves = tuple((os.fsencode(old), os.fsencode(new)) for old, new in plain["moves"])
            trash.append(MasterTrashEntry(os.fsdecode(name), float(plain["created"]), moves))
        except (ValueError, KeyError, TypeError):
            continue
    return trash


def restore(session: TargetSession, name: str) -> MasterTrashEntry:
    """Move an entry back to where it was, and delete its tombstones.

    Raises:
        ArgumentError: no such entry, or a path is taken; nothing was moved.
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
    back = {old: new for new, old in reversed(there)}  # the earlier of two: the later one was made afresh
    for old in back:
        if session.stat(old) is not None:
            raise ArgumentError(f"{os.fsdecode(old)} is taken on the master; move it away first")
    _carry_out(session, [(new, old) for old, new in back.items()])
    subjects = {subject_of(os.fsdecode(old.partition(b"/")[0]), old, old) for old, _ in entry.moves}
    items = {os.fsdecode(subject).partition("/")[2] for subject in subjects}
    take_tombstones(session, subjects, subjects_of(items), trash=name)  # kinds without data included
    if len(back) == len(there):
        _delete(session, base, 0)
    return entry


def empty(session: TargetSession, older_than_s: float, now: float) -> int:
    """Delete entries for good; tombstones stay. Returns how many."""
    count = 0
    for entry in entries(session):
        if now - entry.created >= older_than_s:
            _delete(session, TRASH + b"/" + os.fsencode(entry.name), 0)
            count += 1
    return count


def _delete(session: TargetSession, path: bytes, depth: int) -> None:
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
