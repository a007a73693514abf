"""Column cache of CSV files.

One file per run and column, in the state folder: `<magic 8 bytes><signature 56 bytes, padded>` followed by
little-endian float64. A file is valid while its signature (inode, size, mtime, ctime) is that of the CSV;
a CSV that changed within the last two seconds is not stored. The oldest files are deleted to keep the
total below `MAX_CACHE_BYTES`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.database.change_signatures import csv_signature
from rla_client.database.curves.progress_csv import read_columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MAGIC = b"RLACOL2\n"
SIGNATURE_BYTES = 56
MAX_CACHE_BYTES = 2 << 30
_ABSENT = -1.2345678901234567e-301  # the only value in the file of a column that the table lacks


class CurveCache:
    """Reads columns of CSV files through the cache."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "columns"
        self._stored = 0

    def columns(self, path: str, names: Sequence[str], now_ns: int) -> dict[str, NDArray[np.float64]]:
        """Columns of one table, shape (rows,) each; missing columns are left out.

        Raises:
            BrokenFileError: the file is not a table.
            OSError: the file cannot be opened.
        """
        import numpy as np

        signature, settled = csv_signature(path, now_ns)
        found = {name: self._load(path, name, signature) for name in names} if settled else {}
        have = {name: column for name, column in found.items() if column is not None}
        if settled and len(have) == len(names):
            return {name: column for name, column in have.items() if column.size != 1 or column[0] != _ABSENT}
        fresh = read_columns(path, names)
        if settled and csv_signature(path, now_ns)[0] == signature:
            for name in names:
                self._store(path, name, signature, fresh.get(name, np.array([_ABSENT])))
        return fresh

    def _file(self, path: str, name: str) -> Path:
        digest = hashlib.sha256(f"{path}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()
        return self._folder / digest[:2] / digest[2:34]

    def _load(self, path: str, name: str, signature: bytes) -> NDArray[np.float64] | None:
        import numpy as np

        try:
            with open(self._file(path, name), "rb") as file:
                head = file.read(len(MAGIC) + SIGNATURE_BYTES)
                if head != MAGIC + signature:
                    return None
                return np.frombuffer(file.read(), dtype="<f8")
        except (OSError, ValueError):
            return None

    def _store(self, path: str, name: str, signature: bytes, column: NDArray[np.float64]) -> None:
        target = self._file(path, name)
        with suppress(OSError):  # the cache is optional
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(target, MAGIC + signature + column.astype("<f8").tobytes(), durable=False)
            self._stored += 1

    def trim(self) -> None:
        """Delete the oldest files beyond the limit, if files were stored since the last call."""
        if not self._stored:
            return
        self._stored = 0
        files: list[tuple[float, int, str]] = []
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with suppress(OSError):
                    found = os.stat(os.path.join(folder, name))
                    files.append((found.st_mtime, found.st_size, os.path.join(folder, name)))
        excess = sum(size for _, size, _ in files) - MAX_CACHE_BYTES
        for _, size, name in sorted(files):
            if excess <= 0:
                return
            with suppress(OSError):
                os.unlink(name)
            excess -= size
