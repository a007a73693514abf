"""`SHA256SUMS` of an ended run.

It is written into a run's logs once the master has all of the run. A file that was sent piece by piece, or
written since it was sent, is read once completely: if it differs from what was sent (somebody rewrote it in
place, shortly before the run ended perhaps), it is sent again. The sums are replicated like any file; on the
master (or here) `sha256sum -c SHA256SUMS` in that folder checks every file of the run, of all kinds. They are
written again when a file changes later (a tag, a note). A machine that has only a part of the run writes the
sums of its own files, `SHA256SUMS.<machine>`.

Fetched files are checked against them (`damaged`). A file that was changed after the sums were made is not
judged. Any other whose content differs was damaged, on the master or on the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.worker.source_file import fingerprint, fingerprint_of
from rla_client.contract.errors import BrokenFileError, RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import open_plain, read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import LOG

SUMS_NAME: Final = b"SHA256SUMS"
MAX_SUMS_BYTES: Final = 64 << 20  # some 500,000 files
_SHA_CHARS: Final = 64


def sums_name(part: str) -> bytes:
    """Name of the sums of a run; of a part of one, where there is a machine."""
    return SUMS_NAME + (b"." + part.encode() if part else b"")


class ChecksumsError(RlaError):
    """The sums could not be written; the run stays without them."""


def write_checksums(  # noqa: PLR0913 - one place calls it
    ledger: Ledger,
    number: int,
    root: bytes,
    descriptor: int,
    item: str,
    *,
    compact: bool = False,
    part: str = "",
) -> bytes | None:
    """Check an ended item (`table/YYYY/MM/DD/name`) of a database and write its sums.

    `descriptor`: of the data root; `compact`: files that were sent piece by piece are to be sent completely
    now; `part`: the machine, where that has only a part of the run.

    Returns:
        Path of the sums below the data root; empty where nothing of the item is to be on the master; None
        while a file waits or has changed.

    Raises:
        ChecksumsError: the log folder cannot be written.
    """
    lines = []
    compacted = False
    folder, name = os.fsencode(f"{LOG}/{item}"), sums_name(part)
    for row in ledger.item_files(number, item):
        if row.waiting:
            return None
        if row.path == folder + b"/" + name or row.record is None:
            continue
        sha = row.record.sha256
        if sha is None or _written_since(descriptor, row.path, row.record.local):
            try:
                content = fingerprint(descriptor, row.path, row.record.acked)
            except OSError:
                continue
            if (content.crc, content.size) != (row.record.crc, row.record.acked):
                ledger.send_anew(row.key)
                return None
            if sha is None and compact:
                ledger.send_anew(row.key)
                compacted = True
                continue
            sha = content.sha256
            ledger.set_sha(row.key, sha)
        lines.append(sum_line(sha, os.path.relpath(row.path, folder)))
    if compacted or not lines:  # deleted there on purpose: empty sums would stay after it is sent again
        return None if compacted else b""
    path = folder + b"/" + name
    try:
        with held_folder(os.fsdecode(root), os.fsdecode(folder)) as here:
            write_atomic(here / os.fsdecode(name), b"".join(sorted(lines)))
    except OSError as error:
        raise ChecksumsError(f"{os.fsdecode(path)}: {error.strerror}") from error
    return path


def _written_since(root: int, path: bytes, sent: Local) -> bool:
    """Whether a file here differs from the version that was sent; the next scan may not have seen it yet."""
    try:
        status = os.stat(path, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False  # pruned, or deleted here
    return (status.st_size, status.st_mtime_ns) != (sent.size, sent.mtime_ns)


def sum_line(sha: bytes, name: bytes) -> bytes:
    """A line as coreutils' sha256sum writes it; names with backslashes or newlines are escaped and marked."""
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")
    mark = b"\\" if escaped != name else b""
    return mark + sha.hex().encode() + b"  " + escaped + b"\n"


def damaged(root: str, item: str, fetched: Iterable[str]) -> list[str]:
    """Fetched files (paths below the data root) of an ended item that differ from its sums."""
    folder = Path(root, LOG, item)
    recorded: dict[str, tuple[str, float]] = {}  # SHA-256, and when it was made
    for sums in sorted(folder.glob(f"{os.fsdecode(SUMS_NAME)}*")):
        with suppress(OSError, BrokenFileError):
            made = sums.stat().st_mtime
            entries = parse_sums(read_small(sums, MAX_SUMS_BYTES), os.path.join(LOG, item))
            recorded |= {path: (sha, made) for path, sha in entries.items()}
    differing = []
    for path in fetched:
        sha, made = recorded.get(path, (None, 0.0))
        local = Path(root, path)
        try:
            tells = sha is not None and not local.is_symlink() and local.stat().st_mtime <= made
            if tells and _sha256(local) != sha:
                differing.append(path)
        except (FileNotFoundError, BrokenFileError):
            continue  # deleted meanwhile
    return differing


def _sha256(path: Path) -> str:
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        return fingerprint_of(lambda _, count: file.read(count), size).sha256.hex()


def parse_sums(text: bytes, folder: str) -> dict[str, str]:
    """Path below the data root → SHA-256; `folder` is that of the sums. Other lines are left out."""
    sums = {}
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
        sums[os.path.normpath(os.path.join(folder, os.fsdecode(name)))] = sha.decode("ascii", "replace")
    return sums
