"""Sending order of a sharded checkpoint's files.

A file waits until the master has all files of the earlier sorts: data, receipts, `.metadata`,
`.rla/whole.json`. So readers there never mistake a part of a checkpoint for a complete one. For the same
reason `whole.json` is deleted there first: where a later save of a time-step replaces an earlier one, and
where retention has dropped a checkpoint.

Of a save that is spread over several machines each sends its part, in the same order, into a folder that is
named after the save. Files that only the saving needs stay here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from rla_agent.replicate.ledger_rows import CLEAN, PRUNED, Drop
from rla_agent.replicate.worker.source_file import local_state
from rla_client.contract.layout import CHECKPOINT, PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    FOLDER_ENDING,
    METADATA,
    OWN_FOLDER,
    PART_FILE,
    WHOLE_FILE,
    WHOLE_NAME,
    is_only_of_the_making,
    parse_parts_name,
    receipt_rank,
)

LOOK_AGAIN_S: Final = 0.5
DATA, RECEIPT, INDEX, WHOLE = range(4)
_ENDING: Final = os.fsencode(FOLDER_ENDING)
_OWN: Final = os.fsencode(OWN_FOLDER)
_MAKING: Final = os.fsencode(PARTS_FOLDER)
MAKING: Final = b"/" + _MAKING + b"/"
PART: Final = os.fsencode(f"/{PART_FILE}")
MARK: Final = os.fsencode(WHOLE_NAME)
MARK_BELOW: Final = os.fsencode(f"/{WHOLE_FILE}")
States = Callable[[bytes], Mapping[bytes, tuple[int, ...]]]


def split(kind: str, path: bytes) -> tuple[bytes, bytes] | None:
    """(folder of the sharded checkpoint, path below it) of a file below a data root; None for other files.

    The checkpoint is complete or in the making.
    """
    if kind != CHECKPOINT or (_ENDING not in path and _MAKING not in path):
        return None
    parts = path.split(b"/")
    for end in (len(parts) - 1, len(parts) - 2):  # files are in the folder, or in OWN_FOLDER of it
        if parts[end - 1].endswith(_ENDING) or _is_making(parts[:end]):
            return b"/".join(parts[:end]), b"/".join(parts[end:])
    return None


def _is_making(parts: list[bytes]) -> bool:
    return parts[-2:-1] == [_MAKING] and parse_parts_name(os.fsdecode(parts[-1])) is not None


def is_in_making(path: bytes) -> bool:
    """Whether a file below a data root, or on the master, is of a save in the making."""
    found = split(CHECKPOINT, path)
    return found is not None and _is_making(found[0].split(b"/"))


def sort_of(below: bytes) -> int:
    """Sort of a file of a sharded checkpoint, by its path below the folder."""
    name = os.fsdecode(below)
    if name == WHOLE_FILE:
        return WHOLE
    if name == METADATA:
        return INDEX
    folder, _, file = name.rpartition("/")
    return RECEIPT if folder == OWN_FOLDER and receipt_rank(file) is not None else DATA


def waits_for_others(root: bytes, folder: bytes, below: bytes, states: States) -> bool:
    """Whether a file has to wait until the master has all that comes before it.

    Args:
        root: the data root.
        folder: of the checkpoint, below the root.
        below: the file, below the folder.
        states: the ledger's states of a folder's files: name → state, inode, size, times, acked, mode.
    """
    own = sort_of(below)
    if own == DATA:
        return False
    making = _is_making(folder.split(b"/"))
    for inner in (b"", _OWN):
        here = folder + b"/" + inner if inner else folder
        known = states(here)
        with suppress(FileNotFoundError), os.scandir(os.path.join(root, here)) as entries:
            for entry in entries:
                name = inner + b"/" + entry.name if inner else entry.name
                if sort_of(name) >= own or not entry.is_file(follow_symlinks=False):
                    continue
                if making and is_only_of_the_making(os.fsdecode(entry.name)):
                    continue  # it is never sent
                local = local_state(entry.stat(follow_symlinks=False))
                if known.get(entry.name, ())[:-1] != (CLEAN, *local.version, local.size):
                    return True
    return False


def own_folder(folder: bytes) -> bytes:
    """OWN_FOLDER of a sharded checkpoint."""
    return folder + b"/" + _OWN


def is_called_whole(folder: bytes, states: States) -> bool:
    """Whether `whole.json` of a checkpoint is on the master, or may be."""
    row = states(own_folder(folder)).get(MARK)
    return row is not None and row[5] is not None


def is_of_another_save(root: bytes, folder: bytes, states: States) -> bool:
    """Whether the master's `whole.json` is of an earlier save than the one here.

    A pruned or fetched one is the same save: it keeps its size and time.
    """
    row = states(own_folder(folder)).get(MARK)
    if row is None or row[5] is None:
        return False
    try:
        here = os.lstat(os.path.join(root, own_folder(folder), MARK))
    except FileNotFoundError:
        return row[0] != PRUNED
    return (here.st_size, here.st_mtime_ns) != (row[2], row[3])


def in_order(drops: Iterable[Drop], states: States) -> list[Drop]:
    """Files that may be deleted from the master now, of those that are to be: none before `whole.json`."""
    found = []
    for drop in drops:
        sharded = split(CHECKPOINT, drop.path)
        if sharded is None or sort_of(sharded[1]) == WHOLE or not is_called_whole(sharded[0], states):
            found.append(drop)
    return found
