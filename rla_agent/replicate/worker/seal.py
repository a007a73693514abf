"""When a run has ended and all of it is on the master: a last look at its files, and `SHA256SUMS`.

Files that grew were sent piece by piece. Here each is read once as a whole: if its beginning is no
more what was sent (somebody rewrote it in place), it is sent anew. Then `SHA256SUMS` is put into the
item's log folder, and replicated like any file; on the master (or here) `sha256sum -c SHA256SUMS` in that
folder checks every file of the item, of all kinds.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.worker.source import fingerprint
from rla_client.contract.errors import RlaError
from rla_client.contract.files import held_folder, write_atomic
from rla_client.contract.layout import LOG

if TYPE_CHECKING:
    from rla_agent.replicate.ledger.ledger import Ledger

SUMS_NAME: Final = b"SHA256SUMS"


class SettleError(RlaError):
    """The sums could not be written; they are left out."""


def settle(ledger: Ledger, number: int, root: bytes, descriptor: int, item: str) -> bytes | None:
    """Check an ended item and write its sums.

    Args:
        ledger: with a row for each file.
        number: of the database.
        root: the data root.
        descriptor: of the data root.
        item: `table/YYYY/MM/DD/name`.

    Returns:
        Path of the sums below the data root; None while something waits or was found changed.

    Raises:
        SettleError: the log folder cannot be written.
    """
    lines = []
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
            sha = found.sha256
            ledger.set_sha(row.key, sha)
        lines.append(sum_line(sha, os.path.relpath(row.path, folder)))
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
