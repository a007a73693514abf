"""Fetched files against their run's `SHA256SUMS`, which lies beside its logs once it has ended.

A file that was changed after the sums were made says nothing. Any other whose content differs was
damaged, on the master or on the way.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rla_agent.replicate.worker.send import SUMS_NAME
from rla_client.contract.errors import BrokenFileError
from rla_client.contract.files import open_plain, read_small
from rla_client.contract.layout import LOG

MAX_SUMS_BYTES: Final = 64 << 20  # some 500,000 files
_SHA_CHARS: Final = 64
_READ_BYTES: Final = 4 << 20


def damaged(root: str, item: str, fetched: Iterable[str]) -> list[str]:
    """Fetched files of an ended item that are not what its sums say.

    Args:
        root: the local data root.
        item: `table/YYYY/MM/DD/name`.
        fetched: paths below the data root.

    Returns:
        Those of them that differ; none where there are no sums.
    """
    folder = Path(root, LOG, item)
    sums = folder / os.fsdecode(SUMS_NAME)
    try:
        made = sums.stat().st_mtime
        known = parse(read_small(sums, MAX_SUMS_BYTES), os.path.join(LOG, item))
    except (OSError, BrokenFileError):
        return []
    found = []
    for path in fetched:
        sha = known.get(path)
        local = Path(root, path)
        try:
            if sha is None or local.is_symlink() or local.stat().st_mtime > made or _sha256(local) == sha:
                continue
        except (FileNotFoundError, BrokenFileError):
            continue  # taken away again
        found.append(path)
    return found


def _sha256(path: Path) -> str:
    sha = hashlib.sha256()
    with open_plain(path) as file:
        while data := file.read(_READ_BYTES):
            sha.update(data)
    return sha.hexdigest()


def parse(text: bytes, folder: str) -> dict[str, str]:
    """Path below the data root → SHA-256; `folder` is that of the sums. Other lines are left out."""
    known = {}
    for line in text.split(b"\n"):
        escaped = line.startswith(b"\\")
        sha, gap, name = line.removeprefix(b"\\").partition(b"  ")
        if not gap or len(sha) != _SHA_CHARS:
            continue
        if escaped:
            name = (
                name.replace(b"\\\\", b"\0")
                .replace(b"\\n", b"\n")
                .replace(b"\\r", b"\r")
                .replace(b"\0", b"\\")
            )
        known[os.path.normpath(os.path.join(folder, os.fsdecode(name)))] = sha.decode("ascii", "replace")
    return known
