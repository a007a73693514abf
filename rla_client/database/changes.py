"""Changes to a database that are whole or not there: the trash, and the journal behind it and `copies`.

Everything lies in `<data_root>/.rla/`:

    lock                    held (flock) by the one command that changes the database
    trash/<id>/entry.json   {"format": 1, "created": s, "state": …, "moves": [[from, to], …]}
    trash/<id>/items/…      the moved items, under their paths
    copies/<id>/entry.json  the same for copies (archive, migrate), written when all are staged
    copies/<id>/items/…     staged copies

Paths in a journal are relative to the data root. A change is one journal entry in state `moving`
and then renames, each atomic, all on one file system. Killed before the entry stands: nothing
happened (staged copies without entry are swept). Killed after it: the next command that takes
the lock finishes the renames. A kind that lies on another disk (a link) gets its trash and its
staging below that kind's own `.rla/`.

A trash entry is deleted `TRASH_DAYS` after its creation by whatever command comes next, or by
`empty_trash`: it is renamed to
`gone-<id>` first, so that half of it is never seen as an entry.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rla_client.database.live import known_states, waiting_in_spool, written_unserved
from rla_client.database.records import LIVE_STATES, RUN_FILE, read_json, read_record
from rla_client.database.tree import Item, item_bytes
from rla_client.errors import BrokenFileError, DatabaseError, LiveRunError
from rla_client.layout import DEFAULT_LOG_TYPES, LOG
from rla_client.storage import fsync_folder, write_atomic

HIDDEN = ".rla"
TRASH_DAYS = 7.0
ENTRY = "entry.json"
FORMAT = 1
Move = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TrashEntry:
    """One removal that can still be undone.

    Attributes:
        name: its id, sortable by time.
        created: Unix seconds.
        moves: (old path, path in the trash), relative to the data root.
        bytes: what emptying it frees.
    """

    name: str
    created: float
    moves: tuple[Move, ...]
    bytes: int


@contextmanager
def changing(data_root: Path, now: float, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the database for a change; finishes what a killed command began, drops old trash.

    Args:
        data_root: the database.
        now: Unix seconds.
        waiting: called once if another command holds it.

    Raises:
        DatabaseError: the data root cannot be written.
    """
    import fcntl

    try:
        (data_root / HIDDEN).mkdir(exist_ok=True)
        descriptor = os.open(data_root / HIDDEN / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        message = f"{data_root} cannot be changed: {error.strerror or error}"
        raise DatabaseError(message) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _recover(data_root, now)
        yield
    finally:
        os.close(descriptor)


def refuse_live(data_root: Path, items: Iterable[Item], now: float) -> None:
    """Be sure that nobody writes these runs, as far as their run.json says, and that no rows of them wait.

    Raises:
        LiveRunError: somebody does, or they wait in the spool of this machine; the message lists them.
    """
    items = list(items)
    live = live_runs(data_root, items, now)
    if live:
        message = f"{len(live)} of these runs are being written; stop them first, or choose others:"
        raise LiveRunError(_with_names(message, live))
    waiting = waiting_in_spool(data_root, {(item.table, item.index) for item in items})
    if waiting:
        message = (
            f"rows of {len(waiting)} of these runs wait in the spool and would be lost; let an agent take "
            "them in first (rla-agent start; rla-agent status says what keeps it), or choose others:"
        )
        raise LiveRunError(_with_names(message, waiting))


def _with_names(message: str, runs: Iterable[tuple[str, str]]) -> str:
    return "\n".join([message, *(f"  {table}/{index}" for table, index in sorted(runs))])


def live_runs(data_root: Path, items: Iterable[Item], now: float) -> set[tuple[str, str]]:
    """(table, index) of the runs that are being written, by run.json, or else by what this machine knows."""
    found = set()
    silent = []
    unrecorded = []
    for table, index in {(item.table, item.index) for item in items}:
        try:
            run = read_json(f"{data_root}/{LOG}/{table}/{index}/{RUN_FILE}")
        except BrokenFileError:
            continue
        if run is None:
            unrecorded.append((table, index))
            continue
        if run.get("state") not in LIVE_STATES:
            continue
        record = read_record(data_root, table, index, ())
        if record.is_live(now):
            found.add((table, index))
        else:
            silent.append(record)
    if unrecorded:
        found |= written_unserved(data_root, unrecorded)
    return found | known_states(data_root, silent).keys() if silent else found


def move_to_trash(data_root: Path, items: Sequence[Item], now: float) -> str:
    """Move items into a new trash entry; the caller holds `changing`.

    Returns:
        The entry's name.

    Raises:
        LiveRunError: a run is being written; nothing was moved.
        OSError: a rename failed; the rest of the entry is finished by the next command.
    """
    refuse_live(data_root, items, now)
    name = f"{_entry_time(now)}-{secrets.token_hex(3)}"
    moves = []
    for item in items:
        base = hidden_base(data_root, item.kind)
        for path in item.paths:
            relative = os.path.relpath(path, data_root)
            moves.append((relative, f"{base}/trash/{name}/items/{relative}"))
    folder = data_root / HIDDEN / "trash" / name
    folder.mkdir(parents=True)
    write_entry(folder, now, "moving", moves)
    carry_out(data_root, moves)
    write_entry(folder, now, "done", moves)
    return name


def trash_entries(data_root: Path) -> list[TrashEntry]:
    """What can be restored, oldest first."""
    found = []
    folder = data_root / HIDDEN / "trash"
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        entry = _read_entry(folder / name)
        if entry is not None and not name.startswith("gone-"):
            moves = tuple((str(old), str(new)) for old, new in entry["moves"])
            total = sum(item_bytes(Item("", "", "", (str(data_root / new),)))[0] for _, new in moves)
            found.append(TrashEntry(name, float(entry["created"]), moves, total))
    return sorted(found, key=lambda one: (one.created, one.name))


def restore_trash(data_root: Path, name: str, only: Sequence[Move] | None = None) -> int:
    """Move a trash entry back; the caller holds `changing`.

    Args:
        data_root: the database.
        name: the entry's.
        only: those of its moves that are to be taken back, None for all. The entry keeps the others;
            killed in between, it still names what is back already, which the next restore passes over.

    Returns:
        How many paths came back.

    Raises:
        DatabaseError: no such entry, or something stands in the place of an item; nothing was moved.
    """
    folder = data_root / HIDDEN / "trash" / name
    entry = _read_entry(folder) if os.sep not in name else None
    if entry is None:
        message = f"the trash has no entry {name!r}; `rla trash` lists them"
        raise DatabaseError(message)
    back = [(str(new), str(old)) for old, new in entry["moves"] if only is None or (old, new) in only]
    taken = [
        old for new, old in back if os.path.lexists(data_root / old) and os.path.lexists(data_root / new)
    ]
    if taken:
        message = f"{len(taken)} paths are taken, such as {taken[0]}; move them away first"
        raise DatabaseError(message)
    if len(back) < len(entry["moves"]):
        carry_out(data_root, back)
        left = [(str(old), str(new)) for old, new in entry["moves"] if os.path.lexists(data_root / str(new))]
        write_entry(folder, float(entry["created"]), "done", left)
        return len(back)
    write_entry(folder, float(entry["created"]), "restoring", back)
    _finish_restore(data_root, folder, float(entry["created"]), back)
    return len(back)


def _finish_restore(data_root: Path, folder: Path, created: float, back: Sequence[Move]) -> None:
    """Move back what is not back yet; what finds its place taken by now stays, as an entry of its own."""
    carry_out(data_root, back)
    left = [(old, new) for new, old in back if os.path.lexists(data_root / new)]
    if left:
        write_entry(folder, created, "done", left)
    else:
        _delete_entry(data_root, folder.name, back)


def empty_trash(data_root: Path, now: float, older_than_s: float = 0.0) -> int:
    """Delete trash entries for good; the caller holds `changing`.

    Returns:
        Bytes freed.
    """
    freed = 0
    for entry in trash_entries(data_root):
        if now - entry.created >= older_than_s:
            freed += entry.bytes
            _delete_entry(data_root, entry.name, entry.moves)
    return freed


def drop_expired(data_root: Path, now: float) -> None:
    """Empty what has been in the trash for `TRASH_DAYS`; cheap when there is none.

    Any command may call it: who cannot write here, or finds the database busy, leaves it to the next.
    """
    import fcntl

    limit = _entry_time(now - TRASH_DAYS * 86400)
    try:
        names = os.listdir(data_root / HIDDEN / "trash")
        if not any(name[: len(limit)] <= limit for name in names):
            return
        descriptor = os.open(data_root / HIDDEN / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _recover(data_root, now)
    os.close(descriptor)


def _entry_time(now: float) -> str:
    """What the name of a trash entry begins with; sorts by time."""
    return datetime.fromtimestamp(now).strftime("%Y%m%d-%H%M%S")  # noqa: DTZ006 - for people


def _delete_entry(data_root: Path, name: str, moves: Iterable[Move]) -> None:
    bases = {HIDDEN} | {
        path.split(f"/trash/{name}/")[0] for move in moves for path in move if f"/trash/{name}/" in path
    }
    for base in sorted(bases, key=len, reverse=True):
        here = data_root / base / "trash"
        with suppress(FileNotFoundError):
            os.rename(here / name, here / f"gone-{name}")
        shutil.rmtree(here / f"gone-{name}", ignore_errors=True)


def _recover(data_root: Path, now: float) -> None:
    bases = [data_root / HIDDEN, *(data_root / kind / HIDDEN for kind in DEFAULT_LOG_TYPES)]
    for entry_folder in [path for kind in ("trash", "copies") for path in sorted(bases[0].glob(f"{kind}/*"))]:
        entry = _read_entry(entry_folder)
        if entry is None or entry_folder.name.startswith("gone-"):
            continue
        moves = [(str(old), str(new)) for old, new in entry["moves"]]
        if entry["state"] == "moving":
            carry_out(data_root, moves)
            if entry_folder.parent.name == "trash":
                write_entry(entry_folder, entry["created"], "done", moves)
        elif entry["state"] == "restoring":
            _finish_restore(data_root, entry_folder, entry["created"], moves)
    for base in bases:
        for leftover in [*base.glob("copies/*"), *base.glob("trash/gone-*")]:
            shutil.rmtree(leftover, ignore_errors=True)
    for leftover in bases[0].glob("trash/*"):
        if not (leftover / ENTRY).exists():
            shutil.rmtree(leftover, ignore_errors=True)
    empty_trash(data_root, now, TRASH_DAYS * 86400)


def unfinished(data_root: Path, moves: Iterable[Move]) -> bool:
    """Whether something is still where it was to be moved from."""
    return any(os.path.lexists(data_root / old) for old, _ in moves)


def carry_out(data_root: Path, moves: Iterable[Move]) -> None:
    """Make the renames of a journal entry, those that are not made yet."""
    touched = set()
    for old, new in moves:
        source, target = data_root / old, data_root / new
        if not os.path.lexists(source) or os.path.lexists(target):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(source, target)
        except FileNotFoundError:
            continue
        touched |= {source.parent, target.parent}
    for folder in touched:
        with suppress(OSError):
            fsync_folder(folder)


def hidden_base(data_root: Path, kind: str) -> str:
    """`.rla`, or `<kind>/.rla` where the kind lies on another disk."""
    folder = data_root / kind
    if folder.exists() and folder.stat().st_dev != data_root.stat().st_dev:
        return f"{kind}/{HIDDEN}"
    return HIDDEN


def write_entry(folder: Path, created: float, state: str, moves: Sequence[Move]) -> None:
    """Write a journal entry; it stands when this returns."""
    content = {"format": FORMAT, "created": created, "state": state, "moves": [list(move) for move in moves]}
    write_atomic(folder / ENTRY, json.dumps(content, indent=1).encode("utf-8", "surrogatepass"))


def _read_entry(folder: Path) -> dict[str, Any] | None:
    try:
        entry = read_json(folder / ENTRY)
    except BrokenFileError:
        return None
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return None
        raise
    if entry is None or entry.get("format") != FORMAT or not isinstance(entry.get("moves"), list):
        return None
    return entry
