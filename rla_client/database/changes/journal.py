"""Journal of database changes.

Everything lies in `<data_root>/.rla/`: `trash/<id>/entry.json` is {"format": 1, "created": s, "state": …,
"moves": [[from, to], …]}, `trash/<id>/items/…` the moved items under their paths, `copies/<id>/` the same for
copies and imported runs, written once all are staged. Paths are relative to the data root. A change is one
entry in state `moving` followed by renames, each atomic, all on one file system. A kind on another disk (a
link) has its trash and its staging folder below its own `.rla/`.

A database, and with it its journal, may come from somebody else. Therefore folders are reached without
following links, an entry with paths outside of the data root is ignored, and the names of deleted folders
come from this module, never from an entry.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import BrokenFileError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder, open_root, walk_root
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES
from rla_client.database.json_files import read_json
from rla_client.database.records.record_reader import MAX_TIME

HIDDEN = ".rla"
ENTRY = "entry.json"
FORMAT = 1
MAX_ENTRY_BYTES = 128 << 20  # `rla rm` of 50,000 runs
MAX_ENTRY_VALUES = 2_000_000
Move = tuple[str, str]
BASES = (*(f"{kind}/{HIDDEN}" for kind in (*DEFAULT_LOG_TYPES, ARCHIVED_TABLE)), HIDDEN)


def sorted_names(data_root: Path, folder: str) -> list[str]:
    """Sorted names in a folder below the data root; empty if it is missing or behind a link."""
    try:
        with held_folder(data_root, folder) as here:
            return sorted(os.listdir(here))
    except (FileNotFoundError, NotADirectoryError):
        return []


def carry_out(data_root: Path, moves: Iterable[Move]) -> None:
    """Make the renames of a journal entry that are not made yet.

    Raises:
        UnsafeNameError: a path leaves the data root.
        NotADirectoryError: a link or a file is in the way of a target.
        OSError: a rename failed.
    """
    changed: dict[str, None] = {}  # folders, synced after all renames: the entry is kept until then
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
    """`.rla`, or `<kind>/.rla` if the kind is on another disk."""
    folder = data_root / kind
    if folder.exists() and folder.stat().st_dev != data_root.stat().st_dev:
        return f"{kind}/{HIDDEN}"
    return HIDDEN


def write_entry(data_root: Path, folder: str, created: float, state: str, moves: Sequence[Move]) -> None:
    """Write a journal entry into its folder below the data root; it is durable when this returns."""
    content = {"format": FORMAT, "created": created, "state": state, "moves": [list(move) for move in moves]}
    with held_folder(data_root, folder, create=True) as here:
        write_atomic(here / ENTRY, json.dumps(content, indent=1).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A journal entry with all paths inside the data root."""

    created: float
    state: str
    moves: tuple[Move, ...]


def read_entry(data_root: Path, folder: str) -> JournalEntry | None:
    """The entry in a folder; None if there is none, or if it is broken or leaves the data root."""
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
                return JournalEntry(float(created), state, tuple(move for move in whole if move is not None))
    return None


def _checked_move(move: object) -> Move | None:
    match move:
        case [str() as old, str() as new] if not any(
            part in {"", ".", ".."} or "\0" in part for path in (old, new) for part in path.split("/")
        ):
            return old, new
    return None
