"""Changes to a database that are whole or not there: the trash, copies and new items, and their journal.

Everything lies in `<data_root>/.rla/`:

    lock                    held (flock) by the one command that changes the database
    trash/<id>/entry.json   {"format": 1, "created": s, "state": …, "moves": [[from, to], …]}
    trash/<id>/items/…      the moved items, under their paths
    copies/<id>/entry.json  the same for copies and imported runs, written when all are staged
    copies/<id>/items/…     staged copies

Paths in a journal are relative to the data root. A change is one journal entry in state `moving`
and then renames, each atomic, all on one file system. Killed before the entry stands: nothing
happened (staged copies without entry are swept). Killed after it: the next command that takes
the lock finishes the renames. A kind that lies on another disk (a link) gets its trash and its
staging below that kind's own `.rla/`.

A database may come from somebody else, and its journal with it. So nothing here goes by path: folders are
reached as `contract.filesystem.safe_paths` says, without following links, an entry whose paths leave the data
root is no entry, and what is deleted is named by this module and not by an entry.

A trash entry is deleted `TRASH_DAYS` after its creation by whatever command comes next, or by
`empty_trash`: it is renamed to `gone-<id>` first, so that half of it is never seen as an entry.

What a master lacks, and moving runs to its trash, is the work of the agent package: it is started as a
process of its own (`rla-agent transfer …`), with the runs on its stdin.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rla_client.config.project import require_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import BrokenFileError, DatabaseError, LiveRunError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_file, fsync_folder, write_atomic
from rla_client.contract.filesystem.safe_paths import discard, held_folder, open_folder, open_root, walk_root
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES, LOG
from rla_client.contract.process.locks import try_lock, wait_for_lock
from rla_client.contract.run_file import LIVE_STATES, RUN_FILE
from rla_client.contract.safe_names import component_problem
from rla_client.database.records import (
    MAX_TIME,
    known_states,
    read_json,
    read_record,
    waiting_in_spool,
    written_unserved,
)
from rla_client.database.tree import Item, item_bytes

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
    _refuse_links(data_root, items)
    name = f"{datetime.fromtimestamp(now):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"  # noqa: DTZ006 - for people
    moves = []
    for item in items:
        base = _hidden_base(data_root, item.kind)
        for path in item.paths:
            relative = os.path.relpath(path, data_root)
            moves.append((relative, f"{base}/trash/{name}/items/{relative}"))
    folder = f"{HIDDEN}/trash/{name}"
    write_entry(data_root, folder, now, "moving", moves)
    _carry_out(data_root, moves)
    write_entry(data_root, folder, now, "done", moves)
    return name


def _refuse_links(data_root: Path, items: Iterable[Item]) -> None:
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
        _carry_out(data_root, back)
        left = [(old, new) for old, new in entry.moves if os.path.lexists(data_root / new)]
        write_entry(data_root, folder, entry.created, "done", left)
        return len(back)
    write_entry(data_root, folder, entry.created, "restoring", back)
    _finish_restore(data_root, folder, entry.created, back)
    return len(back)


def _finish_restore(data_root: Path, folder: str, created: float, back: Sequence[Move]) -> None:
    """Move back what is not back yet; what finds its place taken by now stays, as an entry of its own."""
    _carry_out(data_root, back)
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
        _carry_out(data_root, entry.moves)
        if folder.startswith(f"{HIDDEN}/trash/"):
            write_entry(data_root, folder, entry.created, "done", entry.moves)
    elif entry.state == "restoring":
        _finish_restore(data_root, folder, entry.created, entry.moves)


def _carry_out(data_root: Path, moves: Iterable[Move]) -> None:
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


def _hidden_base(data_root: Path, kind: str) -> str:
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


@contextmanager
def _appearing(data_root: Path, now: float) -> Iterator[tuple[str, list[Move]]]:
    """A name below `copies`, and the moves of what is staged there: all of it appears, or nothing stays."""
    name = f"{int(now)}-{secrets.token_hex(4)}"
    folder = f"{HIDDEN}/copies/{name}"
    moves: list[Move] = []
    try:
        yield name, moves
        if moves:
            write_entry(data_root, folder, now, "moving", moves)
            _carry_out(data_root, moves)
    finally:
        unfinished = any(os.path.lexists(data_root / old) for old, _ in moves)
        if not (data_root / folder / ENTRY).exists() or not unfinished:
            for base in {HIDDEN, *(old.partition("/copies/")[0] for old, _ in moves)}:
                discard(data_root, f"{base}/copies", name)


def copy_items(
    data_root: Path, items: Sequence[Item], target: Callable[[Item], str], now: float
) -> list[Item]:
    """Copy the items of one run, all of them or none; the caller holds `changing`.

    Args:
        data_root: the database.
        items: items of one run.
        target: where an item's table goes, relative to the data root, such as `arc/log/task`.
        now: Unix seconds.

    Returns:
        Those that were copied; items that are already there are left as they are.

    Raises:
        LiveRunError: the run is being written.
        OSError: no space and the like; nothing is left of the copy.
    """
    refuse_live(data_root, items, now)
    copied = []
    with _appearing(data_root, now) as (name, moves):
        for item in items:
            day = item.index.rsplit("/", 1)[0]
            finals = {path: f"{target(item)}/{day}/{os.path.basename(path)}" for path in item.paths}
            fresh = {path: to for path, to in finals.items() if not os.path.lexists(data_root / to)}
            for path, final in fresh.items():
                staging = f"{_hidden_base(data_root, Path(final).parts[0])}/copies/{name}/items"
                moves.append((f"{staging}/{len(moves)}", final))
                with held_folder(data_root, staging, create=True) as here:
                    _copy(path, here / os.path.basename(moves[-1][0]))
            if fresh:
                copied.append(item)
    return copied


def _copy(source: str, target: Path) -> None:
    if os.path.isdir(source) and not os.path.islink(source):
        shutil.copytree(source, target, symlinks=True, ignore=_not_to_copy, copy_function=_copy_file)
        for folder, _, _ in os.walk(target):
            fsync_folder(folder)
    else:
        _copy_file(source, os.fspath(target))


def _not_to_copy(folder: str, names: list[str]) -> list[str]:
    """Temp files, sockets and pipes."""
    skipped = []
    for name in names:
        path = os.path.join(folder, name)
        plain = os.path.islink(path) or os.path.isdir(path) or os.path.isfile(path)
        if name.startswith(TEMP_PREFIX) or not plain:
            skipped.append(name)
    return skipped


def _copy_file(source: str, target: str) -> str:
    shutil.copy2(source, target, follow_symlinks=False)
    if not os.path.islink(target):
        fsync_file(target)
    return target


def publish(data_root: Path, build: Callable[[Path], dict[str, str]], now: float) -> None:
    """Make new items, each of which appears whole; the caller holds `changing`.

    Killed in between, the next command that changes the database makes the rest of them appear, or none.

    Args:
        data_root: the database.
        build: fills a fresh folder and returns {path in it: final path relative to the data root},
            in the order in which they appear.
        now: Unix seconds.

    Raises:
        OSError: no space and the like; nothing is left.
    """
    with _appearing(data_root, now) as (name, moves):
        folder = f"{HIDDEN}/copies/{name}/items"
        with held_folder(data_root, folder, create=True) as staging:
            moves += [(f"{folder}/{staged}", final) for staged, final in build(staging).items()]
        if moves:
            os.sync()  # once, instead of an fsync for each of many small files


def lacking(data_root: Path, items: Sequence[Item]) -> dict[str, Any] | None:
    """What of these items no master has: `files`, `bytes`; `pruned`: files that only a master has.

    None where this machine sends nothing of the database, or cannot tell.
    """
    if not (find_places().state / "replicate" / "ledger.db").exists():
        return None
    done = _transfer("lacks", data_root, items, capture=True)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return None
    return found if done.returncode == 0 and found.get("replicated") else None


def remove_on_master(data_root: Path, items: Sequence[Item], config: Path | None) -> None:
    """Move items on the master to its trash; nobody sends them there again.

    Raises:
        DatabaseError: no rla_config.yaml, or the master did not do it; nothing was changed here.
    """
    source = config if config is not None else require_config(Path.cwd(), data_root.absolute())
    done = _transfer("remove", data_root, items, "--config", str(source.absolute()))
    if done.returncode != 0:
        message = "the master has not moved them to its trash, so nothing was removed here either"
        raise DatabaseError(message)


def _transfer(
    name: str, data_root: Path, items: Sequence[Item], *words: str, capture: bool = False
) -> subprocess.CompletedProcess[bytes]:
    kinds = sorted({item.kind for item in items})
    runs = sorted({f"{item.table}/{item.index}" for item in items})
    command = [sys.executable, "-m", "rla_agent", "transfer", name, "-", "--data-root", str(data_root)]
    for kind in kinds:
        command += ["--kind", kind]
    sys.stdout.flush()
    return subprocess.run(
        [*command, *words],
        input=b"".join(os.fsencode(run) + b"\0" for run in runs),  # names may have blanks and line breaks
        stdout=subprocess.PIPE if capture else None,
        stderr=subprocess.PIPE if capture else None,
        check=False,
    )
