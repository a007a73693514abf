"""Change signatures of runs.

A signature is the mtime of the log folder, and inode, size, mtime and ctime of progress.csv; a run with
several streams adds the same of each role's table (see `stream_tables`). The ctime detects a CSV that was
truncated and grew back to its old size. A folder with an unchanged mtime has no new tables, so it is
listed only if something else differs. A time stamp younger than `RACY_NS` proves nothing, because a change
in the same clock tick would not show: such entries get no signature and are checked again next time.

Samples have their own signature, of inode, size, mtime and ctime of each file: they may appear (an import)
and disappear (`prune`) while the log stays.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.layout import LOG, SAMPLES, is_samples_file
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.curves.stream_tables import roles_in, table_of

if TYPE_CHECKING:
    from typing_extensions import Self


RACY_NS = 2_000_000_000  # FAT time stamps have steps of 2 s, those of Linux file systems at least 4 ms
MAX_SAMPLES_BYTES = 2 << 30  # of one run; larger samples are not copied into the lake
_NO_LOG = "no log"
ROLE = "|"  # separates the parts of roles in a signature
_DAY = len("YYYY/MM/DD")


class Signatures:
    """Signatures of log folders; fastest for runs in the order of their days."""

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
        with suppress(OSError):
            self._folder = os.open(f"{self._root}/{LOG}/{table}/{day}", os.O_RDONLY | os.O_DIRECTORY)

    def of(self, table: str, index: str, known: str | None = None) -> str:
        """Signature of one run; empty if it is not settled yet. A refresh calls this up to 100,000 times.

        Args:
            table: task table.
            index: of the run.
            known: the former signature; if it still fits, the folder is not listed.
        """
        if index[:_DAY] != self._day or table != self._table:
            self._open(table, index[:_DAY])
        if self._folder < 0:
            return _NO_LOG
        try:
            return self._of_folder(index[_DAY + 1 :], known)
        except OSError:  # no permission, a link to itself, a disk that cannot be read
            return ""

    def _of_folder(self, name: str, known: str | None) -> str:
        folder, settled_ns = self._folder, self._settled_ns
        try:
            mtime_ns = os.stat(name, dir_fd=folder).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return _NO_LOG
        try:
            csv = os.stat(f"{name}/{PROGRESS_FILE}", dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            return "" if mtime_ns >= settled_ns else self._with_roles(name, str(mtime_ns), known)
        csv_ns, changed_ns = csv.st_mtime_ns, csv.st_ctime_ns
        if mtime_ns >= settled_ns or csv_ns >= settled_ns or changed_ns >= settled_ns:
            return ""
        own = f"{mtime_ns},{csv.st_ino},{csv.st_size},{csv_ns},{changed_ns}"
        return own if own == known else self._with_roles(name, own, known)

    def _with_roles(self, name: str, own: str, known: str | None) -> str:
        """The signature followed by that of each role's table; empty if one is not settled yet."""
        before = (known or "").split(ROLE)
        if before[0] == own:
            roles = [part.partition(",")[0] for part in before[1:]]
        else:
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._folder)
            try:
                roles = roles_in(os.listdir(folder))
            finally:
                os.close(folder)
        for role in roles:
            csv = os.stat(f"{name}/{table_of(PROGRESS_FILE, role)}", dir_fd=self._folder)
            if max(csv.st_mtime_ns, csv.st_ctime_ns) >= self._settled_ns:
                return ""
            own += f"{ROLE}{role},{csv.st_ino},{csv.st_size},{csv.st_mtime_ns},{csv.st_ctime_ns}"
        return own


class SamplesSignatures:
    """Signatures of the samples of runs."""

    def __init__(self, root: Path, now_ns: int) -> None:
        self._base = f"{root}/{SAMPLES}"
        self._settled_ns = now_ns - RACY_NS
        self._tables: dict[str, bool] = {}

    def of(self, table: str, index: str) -> tuple[str, int]:
        """Signature of one run's samples, and their bytes; ("", 0) without settled ones, or with too many."""
        if table not in self._tables:
            self._tables[table] = os.path.isdir(f"{self._base}/{table}")
        if not self._tables[table]:
            return "", 0
        folder = f"{self._base}/{table}/{index}"
        found, total = "", 0
        try:
            for name in sorted(filter(is_samples_file, os.listdir(folder))):
                file = os.stat(f"{folder}/{name}")
                if max(file.st_mtime_ns, file.st_ctime_ns) >= self._settled_ns:
                    return "", 0
                found += f"{name},{file.st_ino},{file.st_size},{file.st_mtime_ns},{file.st_ctime_ns}{ROLE}"
                total += file.st_size
        except OSError:
            return "", 0
        return (found, total) if total <= MAX_SAMPLES_BYTES else ("", 0)


def signed_size(signature: str) -> tuple[int, int] | None:
    """Newest time stamp (Unix nanoseconds) and bytes of all tables; None without a log folder."""
    parts = [part.split(",") for part in signature.split(ROLE)]
    if not parts[0][0].isdecimal():
        return None
    stamps = [int(stamp) for part in parts for stamp in part[3:]]
    sizes = [int(part[2]) for part in parts if len(part) > 2]  # noqa: PLR2004 - see the module docstring
    return max([int(parts[0][0]), *stamps]), sum(sizes)


def csv_signature(path: str, now_ns: int) -> tuple[bytes, bool]:
    """Signature of a file's content, and whether its time stamps are old enough to be trusted.

    Raises:
        OSError: there is no such file.
    """
    found = os.stat(path)
    parts = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    digest = hashlib.sha224(repr(parts).encode()).hexdigest().encode()
    return digest, now_ns - max(found.st_mtime_ns, found.st_ctime_ns) > RACY_NS
