"""Listing of a folder's sharded checkpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rla_client.contract.errors import BrokenFileError, NotAFileError, RemoteProtocolError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.item.prune_notes import PrunedFile
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    FENCE_FILE,
    METADATA,
    OWN_FOLDER,
    PART_FILE,
    STAGED_METADATA,
    WHOLE_FILE,
    folder_name,
    parse_folder_name,
    parse_parts_name,
    receipt_rank,
)
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole
from rla_client.contract.sharded_checkpoint.records import (
    MAX_RECEIPT_BYTES,
    MAX_WHOLE_BYTES,
    Fence,
    Receipt,
    Whole,
)
from rla_client.contract.sharded_checkpoint.step import NO_CHECKPOINT, SaveInTheMaking

UNREADABLE = (OSError, RemoteProtocolError, BrokenFileError, NotAFileError)


def read_fence(folder: Path) -> Fence | None:
    """The fence of a checkpoint folder; None: all saves may be published."""
    try:
        return Fence.decode(read_small(folder / PARTS_FOLDER / FENCE_FILE, MAX_RECEIPT_BYTES))
    except UNREADABLE:
        return None


def parts_of(folder: Path) -> list[str]:
    """Names of the saves in the making in a checkpoint folder, sorted."""
    try:
        names = sorted(os.listdir(folder / PARTS_FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if parse_parts_name(name) is not None]


def waiting_parts(folder: Path) -> list[str]:
    """Those of `parts_of` that are this machine's part of a save, and wait for the master."""
    return [name for name in parts_of(folder) if os.path.lexists(folder / PARTS_FOLDER / name / PART_FILE)]


def finals_of(folder: Path) -> list[str]:
    """Names of the folders with the name of a whole checkpoint, sorted."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if parse_folder_name(name) is not None and not name.startswith(".")]


def look(folder: Path, parts: str) -> SaveInTheMaking:
    """State of a save in the making.

    Raises:
        FileNotFoundError: its folder is not there (any more).
        OSError: it cannot be read.
    """
    parsed = parse_parts_name(parts)
    assert parsed is not None, parts
    name, step, token = parsed
    with held_folder(folder, f"{PARTS_FOLDER}/{parts}") as here:
        receipts = _receipts(here, name, step, token)
        whole = read_whole(here)
        if whole is not None and whole.save.token != token:
            whole = None
        marked = os.path.lexists(here / PART_FILE)
        files = {METADATA, STAGED_METADATA}
        files.update(entry.file for receipt in receipts.values() for entry in receipt.files)
        sizes = dict(_sizes(here, files))
    final = folder / folder_name(name, step)
    holder = None
    if os.path.lexists(final):
        there: Whole | PrunedFile | None = read_whole(final) or note_of_whole(final)
        holder = NO_CHECKPOINT if there is None or there.order is None else there.order
    return SaveInTheMaking(token, receipts, sizes, whole, holder, read_fence(folder), marked)


def read_whole(path: Path) -> Whole | None:
    """`whole.json` of a checkpoint's folder; None where it is not complete."""
    try:
        return Whole.decode(read_small(path / WHOLE_FILE, MAX_WHOLE_BYTES))
    except UNREADABLE:
        return None


def _receipts(here: Path, name: str, step: int, token: str) -> dict[int, Receipt]:
    return {
        receipt.rank: receipt
        for receipt in receipts_in(here)
        if (receipt.save.token, receipt.save.name, receipt.save.step) == (token, name, step)
    }


def receipts_in(path: Path) -> Iterator[Receipt]:
    """The readable receipts in a checkpoint's folder."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.listdir(path / OWN_FOLDER):
            rank = receipt_rank(entry)
            if rank is None:
                continue
            with suppress(*UNREADABLE):
                receipt = Receipt.decode(read_small(path / OWN_FOLDER / entry, MAX_RECEIPT_BYTES))
                if receipt.rank == rank:
                    yield receipt


def _sizes(here: Path, files: Iterable[str]) -> Iterator[tuple[str, int]]:
    for file in files:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(here / file)
            if stat.S_ISREG(found.st_mode):
                yield file, found.st_size


def is_of_save(path: Path, token: str) -> bool:
    """Whether a folder is the complete checkpoint of a save, also where only the master has all of it."""
    whole = read_whole(path)
    if whole is not None:
        return whole.save.token == token
    told = note_of_whole(path) is not None
    return told and any(receipt.save.token == token for receipt in receipts_in(path))


def is_named(final: Path, whole: Whole) -> bool:
    """Whether the final name belongs to this save, with `whole.json` or a note of it."""
    found: Whole | PrunedFile | None = read_whole(final) or note_of_whole(final)
    return found is not None and found.order == whole.order
