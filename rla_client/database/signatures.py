"""The signatures of runs: whether their log folders changed.

A signature is the mtime of the log folder, and inode, size, mtime and ctime of progress.csv. The ctime makes
a CSV that was cut and grew back to its old size differ. A time stamp younger than `RACY_NS` when it was
looked at proves nothing, because a change in the same clock tick would not show: such entries are noted
without signature and looked at again next time.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.layout import LOG
from rla_client.database.curves.progress_csv import PROGRESS_FILE

if TYPE_CHECKING:
    from typing_extensions import Self


RACY_NS = 2_000_000_000  # FAT's clock has 2 s; the finest tick of Linux is 4 ms
_NO_LOG = "no log"
_DAY = len("YYYY/MM/DD")


class Signatures:
    """What tells whether the log folders of runs changed; fastest for runs in the order of their days."""

    def __init__(self, root: Path, now_ns: int) -> None:
        self._root = root
        self._settled_ns = now_ns - RACY_NS
        self._table = self._day = ""
        self._folder = -1  # of that day: a path relative to it is resolved in half the time

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _open(self, table: str, day: str) -> None:
        self._close()
        self._table, self._day = table, day
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            self._folder = os.open(f"{self._root}/{LOG}/{table}/{day}", os.O_RDONLY | os.O_DIRECTORY)

    def of(self, table: str, index: str) -> str:
        """The signature of one run; empty when it cannot be told yet. Done 100,000 times at a look."""
        if index[:_DAY] != self._day or table != self._table:
            self._open(table, index[:_DAY])
        name, folder, settled_ns = index[_DAY + 1 :], self._folder, self._settled_ns
        if folder < 0:
            return _NO_LOG
        try:
            mtime_ns = os.stat(name, dir_fd=folder).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            return "" if isinstance(error, PermissionError) else _NO_LOG  # a day that may not be entered
        try:
            csv = os.stat(f"{name}/{PROGRESS_FILE}", dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return "" if mtime_ns >= settled_ns else str(mtime_ns)
        except PermissionError:  # the run's folder is not for us, until it is
            return ""
        csv_ns, changed_ns = csv.st_mtime_ns, csv.st_ctime_ns
        if mtime_ns >= settled_ns or csv_ns >= settled_ns or changed_ns >= settled_ns:
            return ""
        return f"{mtime_ns},{csv.st_ino},{csv.st_size},{csv_ns},{changed_ns}"


def csv_signature(path: str, now_ns: int) -> tuple[bytes, bool]:
    """What tells one content of a file from another, and whether it is old enough to be trusted.

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)
    parts = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    digest = hashlib.sha224(repr(parts).encode()).hexdigest().encode()
    return digest, now_ns - max(found.st_mtime_ns, found.st_ctime_ns) > RACY_NS
