"""`SHA256SUMS`: written into a run's logs once the master has all of it; fetched files are compared with it.

Files that grew were sent piece by piece, so `settle` reads each once as a whole: if its beginning is no
longer what was sent (somebody rewrote it in place), it is sent anew. The sums are replicated like any file;
on the master (or here) `sha256sum -c SHA256SUMS` in that folder checks every file of the run, of all kinds.

On the way back, a file that was changed after the sums were made says nothing. Any other whose content
differs was damaged, on the master or on the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.worker.source import fingerprint, fingerprint_of
from rla_client.contract.errors import BrokenFileError, RlaError
from rla_client.contract.files import held_folder, open_plain, read_small, write_atomic
from rla_client.contract.layout import LOG

SUMS_NAME: Final = b"SHA256SUMS"
MAX_SUMS_BYTES: Final = 64 << 20  # some 500,000 files
_SHA_CHARS: Final = 64


class SettleError(RlaError):
    """The sums could not be written; they are left out."""


def settle(
    ledger: Ledger, number: int, root: bytes, descriptor: int, item: str, *, compact: bool = False
) -> bytes | None:
    """Check an ended item and write its sums.

    Args:
        ledger: with a row for each file.
        number: of the database.
        root: the data root.
        descriptor: of the data root.
        item: `table/YYYY/MM/DD/name`.
        compact: what was sent piece by piece is to be sent as a whole now.

    Returns:
        Path of the sums below the data root; empty where nothing of the item is to be on the master; None
        while something waits or was found changed.

    Raises:
        SettleError: the log folder cannot be written.
    """
    lines = []
    compacted = False
    folder = os.fsencode(f"{LOG}/{item}")
    for row in ledger.item_files(number, item):
        if row.waiting:
            return None
        if row.path == folder + b"/" + SUMS_NAME or row.record is None:
            continue
        sha = row.record.sha256
        if sha is None:
            try:
                found = fingerprint(descriptor, row.path, row.record.acked)
            except OSError:
                continue
            if (found.crc, found.size) != (row.record.crc, row.record.acked):
                ledger.send_anew(row.key)
                return None
            if compact:
                ledger.send_anew(row.key)
                compacted = True
                continue
            sha = found.sha256
            ledger.set_sha(row.key, sha)
        lines.append(sum_line(sha, os.path.relpath(row.path, folder)))
    if compacted or not lines:  # deleted there on purpose: empty sums would stay after it is sent again
        return None if compacted else b""
    path = folder + b"/" + SUMS_NAME
    try:
        with held_folder(os.fsdecode(root), os.fsdecode(folder)) as here:
            write_atomic(here / os.fsdecode(SUMS_NAME), b"".join(sorted(lines)))
    except OSError as error:
        raise SettleError(f"{os.fsdecode(path)}: {error.strerror}") from error
    return path


def sum_line(sha: bytes, name: bytes) -> bytes:
    """A line as coreutils' sha256sum writes it; odd names are escaped and marked."""
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != name else b""
    return mark + sha.hex().encode() + b"  " + escaped + b"\n"


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
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        return fingerprint_of(lambda _, count: file.read(count), size).sha256.hex()


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
