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

A database may come from somebody else, and its journal with it. So nothing here goes by path: folders are
reached as `contract.files` says, without following links, an entry whose paths leave the data root is no
entry, and what is deleted is named by this module and not by an entry.

A trash entry is deleted `TRASH_DAYS` after its creation by whatever command comes next, or by
`empty_trash`: it is renamed to
`gone-<id>` first, so that half of it is never seen as an entry.

The trash as people look at it: which runs an entry holds, and which entry a run is meant by.

`changes` moves paths and knows no runs. A run may lie in several entries (one kind removed after
another); it comes back from the newest one that fits.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rla_client.contract.descriptors import try_lock, wait_for_lock
from rla_client.contract.errors import (
    AmbiguousRunError,
    BrokenFileError,
    DatabaseError,
    LiveRunError,
    UnsafeNameError,
)
from rla_client.contract.files import discard, held_folder, open_folder, open_root, walk_root, write_atomic
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    ARCHIVED_TABLE,
    DEFAULT_LOG_TYPES,
    LOG,
    component_problem,
)
from rla_client.contract.opening import LIVE_STATES, RUN_FILE
from rla_client.database.choosing import MAX_CANDIDATES_SHOWN, match_runs
from rla_client.database.live import known_states, waiting_in_spool, written_unserved
from rla_client.database.records import MAX_TIME, read_json, read_record, short_name
from rla_client.database.tree import Item, archive_stem, item_bytes

_ITEM = re.compile(r"(?P<kind>[^/]+)/(?P<table>.+?)/(?P<day>\d{4}/\d{2}/\d{2})/(?P<name>[^/]+)(?P<rest>/.+)?")
RunName = tuple[str, str]  # (table, index)
HIDDEN = ".rla"
TRASH_DAYS = 7.0
ENTRY = "entry.json"
FORMAT = 1
MAX_ENTRY_BYTES = 128 << 20  # `rla rm` of 50,000 runs
MAX_ENTRY_VALUES = 2_000_000
Move = tuple[str, str]
_BASES = (*(f"{kind}/{HIDDEN}" for kind in (*DEFAULT_LOG_TYPES, ARCHIVED_TABLE)), HIDDEN)


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
    try:
        descriptor = _open_lock(data_root, create=True)
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


def _open_lock(data_root: Path, *, create: bool = False) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with held_folder(data_root, HIDDEN, create=create) as hidden:
        return os.open(hidden / "lock", flags, 0o666)


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
        DatabaseError: an item lies behind a link; nothing was moved.
        OSError: a rename failed; the rest of the entry is finished by the next command.
    """
    refuse_live(data_root, items, now)
    refuse_links(data_root, items)
    name = f"{_entry_time(now)}-{secrets.token_hex(3)}"
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


def refuse_links(data_root: Path, items: Iterable[Item]) -> None:
    """Be sure that items lie in the data root itself, and not where a link below a kind leads.

    Raises:
        DatabaseError: one does not.
    """
    for folder in {
        os.path.relpath(os.path.dirname(path), data_root) for item in items for path in item.paths
    }:
        try:
            os.close(open_folder(data_root, folder))
        except FileNotFoundError:
            continue
        except (NotADirectoryError, UnsafeNameError) as error:
            message = f"{folder} lies behind a link; what is there is not changed from here"
            raise DatabaseError(message) from error


def trash_entries(data_root: Path) -> list[TrashEntry]:
    """What can be restored, oldest first."""
    found = []
    for name in _names(data_root, f"{HIDDEN}/trash"):
        entry = _read_entry(data_root, f"{HIDDEN}/trash/{name}")
        if entry is not None and not name.startswith("gone-"):
            moves = entry.moves
            total = sum(item_bytes(Item("", "", "", (str(data_root / new),)))[0] for _, new in moves)
            found.append(TrashEntry(name, entry.created, moves, total))
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
    folder = f"{HIDDEN}/trash/{name}"
    entry = _read_entry(data_root, folder) if component_problem(name) is None else None
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
    _finish_restore(data_root, folder, entry.created, back)
    return len(back)


def _finish_restore(data_root: Path, folder: str, created: float, back: Sequence[Move]) -> None:
    """Move back what is not back yet; what finds its place taken by now stays, as an entry of its own."""
    carry_out(data_root, back)
    left = [(old, new) for new, old in back if os.path.lexists(data_root / new)]
    if left:
        write_entry(data_root, folder, created, "done", left)
    else:
        _delete_entry(data_root, os.path.basename(folder))


def empty_trash(data_root: Path, now: float, older_than_s: float = 0.0) -> int:
    """Delete trash entries for good; the caller holds `changing`.

    Returns:
        Bytes freed.
    """
    freed = 0
    for entry in trash_entries(data_root):
        if now - entry.created >= older_than_s:
            freed += entry.bytes
            _delete_entry(data_root, entry.name)
    return freed


def _entry_time(now: float) -> str:
    """What the name of a trash entry begins with; sorts by time."""
    return datetime.fromtimestamp(now).strftime("%Y%m%d-%H%M%S")  # noqa: DTZ006 - for people


def _delete_entry(data_root: Path, name: str) -> None:
    for base in _BASES:
        with suppress(FileNotFoundError, NotADirectoryError), held_folder(data_root, f"{base}/trash") as here:
            os.rename(here / name, here / f"gone-{name}")
        discard(data_root, f"{base}/trash", f"gone-{name}")


def _names(data_root: Path, folder: str) -> list[str]:
    """Sorted names in a folder of this module; none where it is not there, or a link."""
    try:
        with held_folder(data_root, folder) as here:
            return sorted(os.listdir(here))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _recover(data_root: Path, now: float) -> None:
    held_up = set()
    for kind in ("trash", "copies"):
        for name in _names(data_root, f"{HIDDEN}/{kind}"):
            try:
                _finish(data_root, f"{HIDDEN}/{kind}/{name}")
            except (NotADirectoryError, IsADirectoryError, UnsafeNameError):
                held_up.add(name)  # a link or a file lies in the way: the other entries are not to blame
    for base in _BASES:
        for name in set(_names(data_root, f"{base}/copies")) - held_up:
            discard(data_root, f"{base}/copies", name)
        for name in filter(lambda name: name.startswith("gone-"), _names(data_root, f"{base}/trash")):
            discard(data_root, f"{base}/trash", name)
    for name in _names(data_root, f"{HIDDEN}/trash"):
        if not os.path.lexists(data_root / HIDDEN / "trash" / name / ENTRY):
            discard(data_root, f"{HIDDEN}/trash", name)
    empty_trash(data_root, now, TRASH_DAYS * 86400)


def _finish(data_root: Path, folder: str) -> None:
    """Finish what a killed command began with one entry."""
    entry = _read_entry(data_root, folder)
    if entry is None or os.path.basename(folder).startswith("gone-"):
        return
    if entry.state == "moving":
        carry_out(data_root, entry.moves)
        if folder.startswith(f"{HIDDEN}/trash/"):
            write_entry(data_root, folder, entry.created, "done", entry.moves)
    elif entry.state == "restoring":
        _finish_restore(data_root, folder, entry.created, entry.moves)


def unfinished(data_root: Path, moves: Iterable[Move]) -> bool:
    """Whether something is still where it was to be moved from."""
    return any(os.path.lexists(data_root / old) for old, _ in moves)


def carry_out(data_root: Path, moves: Iterable[Move]) -> None:
    """Make the renames of a journal entry, those that are not made yet.

    Raises:
        UnsafeNameError: a path leaves the data root.
        NotADirectoryError: a link or a file lies on the way to where something is to go.
        OSError: a rename failed.
    """
    changed: dict[str, None] = {}  # folders, synced once all is renamed: the entry stands until then
    root = open_root(data_root)
    try:
        for old, new in moves:
            _move(root, old, new)
            changed |= dict.fromkeys(map(os.path.dirname, (old, new)))
        for folder in changed:
            with suppress(OSError):
                descriptor = walk_root(root, folder.split("/"))
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
    finally:
        os.close(root)


def _move(root: int, old: str, new: str) -> None:
    *above, name = old.split("/")
    *below, final = new.split("/")
    with suppress(FileNotFoundError), ExitStack() as held:
        source = walk_root(root, above)
        held.callback(os.close, source)
        os.stat(name, dir_fd=source, follow_symlinks=False)
        target = walk_root(root, below, create=True)
        held.callback(os.close, target)
        with suppress(FileNotFoundError):
            os.stat(final, dir_fd=target, follow_symlinks=False)
            return
        os.rename(name, final, src_dir_fd=source, dst_dir_fd=target)


def hidden_base(data_root: Path, kind: str) -> str:
    """`.rla`, or `<kind>/.rla` where the kind lies on another disk."""
    folder = data_root / kind
    if folder.exists() and folder.stat().st_dev != data_root.stat().st_dev:
        return f"{kind}/{HIDDEN}"
    return HIDDEN


def write_entry(data_root: Path, folder: str, created: float, state: str, moves: Sequence[Move]) -> None:
    """Write a journal entry into its folder below the data root; it stands when this returns."""
    content = {"format": FORMAT, "created": created, "state": state, "moves": [list(move) for move in moves]}
    with held_folder(data_root, folder, create=True) as here:
        write_atomic(here / ENTRY, json.dumps(content, indent=1).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A journal entry whose paths stay in the data root."""

    created: float
    state: str
    moves: tuple[Move, ...]


def _read_entry(data_root: Path, folder: str) -> _Entry | None:
    try:
        with held_folder(data_root, folder) as here:
            entry = read_json(here / ENTRY, MAX_ENTRY_BYTES, MAX_ENTRY_VALUES)
    except (BrokenFileError, UnsafeNameError):
        return None
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return None
        raise
    match entry:
        case {"format": 1, "created": int() | float() as created, "state": str() as state, "moves": [*moves]}:
            whole = tuple(map(_checked_move, moves))
            if None not in whole and 0 <= created < MAX_TIME:
                return _Entry(float(created), state, tuple(move for move in whole if move is not None))
    return None


def _checked_move(move: object) -> Move | None:
    match move:
        case [str() as old, str() as new] if not any(
            part in {"", ".", ".."} or "\0" in part for path in (old, new) for part in path.split("/")
        ):
            return old, new
    return None


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
        raise AmbiguousRunError(_several(found, reference))
    holding = [one for one in entries if found[0] in one.runs][-1]
    return restore_trash(data_root, holding.entry.name, _moves_of(holding.entry.moves, found[0]))


def _several(found: Sequence[RunName], reference: str) -> str:
    shown = "\n".join(f"  {table}/{index}" for table, index in found[-MAX_CANDIDATES_SHOWN:])
    return f"{len(found)} runs in the trash fit {reference!r}, give a longer part or the entry:\n{shown}"


def _moves_of(moves: Sequence[Move], run: RunName) -> list[Move]:
    return [move for move in moves if run_of(move[0]) == run]
