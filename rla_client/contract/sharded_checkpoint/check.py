"""Check of a sharded checkpoint's files against its `whole.json`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.item.prune_notes import read_note
from rla_client.contract.sharded_checkpoint.records import KeptFile, Whole

READ_BYTES = 1 << 20


def shard_problems(here: Path, whole: Whole, *, hashes: bool) -> Iterator[str]:
    """Faults of a checkpoint's files, in words; files that are on the master alone are not checked.

    Args:
        here: its folder.
        whole: its `whole.json`.
        hashes: read all of them, and compare SHA-256; else only sizes.
    """
    for entry in (*whole.files, whole.metadata):
        if read_note(here, entry.file) is None:
            problem = _problem(here / entry.file, entry, hashes=hashes)
            if problem:
                yield f"{entry.file} {problem}"


def _problem(path: Path, entry: KeptFile, *, hashes: bool) -> str:
    try:
        with open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size != entry.size:
                return f"has {size} bytes, not {entry.size}"
            digest = hashlib.sha256()
            while hashes and (block := file.read(READ_BYTES)):
                digest.update(block)
    except FileNotFoundError:
        return "is missing"
    except (OSError, BrokenFileError) as error:
        return f"cannot be read: {error}"
    return "is not what was saved (SHA-256)" if hashes and digest.hexdigest() != entry.sha256 else ""
