"""Where the lake lies: its manifest, the files of its parts, and the lock of who builds. See the package.

The one place that knows of a file system; the others give names such as `tables/a/2026-01-01-0a1b/runs`.
"""

from __future__ import annotations

import json
import os
import secrets
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from rla_client.contract.descriptors import try_lock
from rla_client.contract.errors import BrokenFileError, DatabaseError, UnsafeNameError
from rla_client.contract.files import (
    TEMP_PREFIX,
    atomic_file,
    discard,
    held_folder,
    open_plain,
    read_small,
    write_atomic,
)
from rla_client.contract.layout import check_relative
from rla_client.contract.parsing import parse_json
from rla_client.database.catalogue import VERSION

LAKE = ".rla/lake"
TABLES = "tables"
MANIFEST = "manifest.json"
FORMAT = 1
MAX_MANIFEST_BYTES = 16 << 20  # 30,000 parts of 500 bytes
MAX_FILE_BYTES = 1 << 30  # of a part's file, packed or not; ours have a tenth of it
FOOTER_END = 8  # bytes: the footer's length, "PAR1"
MAX_FOOTER_BYTES = 64 << 20
NAMES = ("runs", "params", "last", "rows", "system", "files")  # of a part's files


@dataclass(frozen=True, slots=True)
class Part:
    """Some runs of one table, in files of their own.

    Attributes:
        name: its folder below the lake.
        table: task table name.
        first: the least index of its runs.
        last: the greatest.
        runs: how many.
        csv_bytes: of their progress.csv.
        sizes: file name without ending → its bytes.
        footers: file name without ending → checksum of its footer, which Parquet itself does not protect.
        written: Unix seconds.
    """

    name: str
    table: str
    first: str
    last: str
    runs: int
    csv_bytes: int
    sizes: dict[str, int] = field(hash=False)
    footers: dict[str, int] = field(hash=False)
    written: float


def read_parts(data_root: Path) -> list[Part]:
    """The parts that count; none without a lake, or, with a warning, when its manifest is broken."""
    try:
        with held_folder(data_root, LAKE) as folder:
            found = parse_json(read_small(folder / MANIFEST, MAX_MANIFEST_BYTES), MAX_MANIFEST_BYTES)
        return _parts(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError, DatabaseError) as error:
        warn(f"the lake's manifest cannot be read ({error}); the files are read instead")
        return []


def _parts(found: Any) -> list[Part]:  # noqa: ANN401
    if found["format"] != FORMAT or found["catalogue"] != VERSION:
        return []  # of another version: the next build replaces it
    parts = []
    for one in found["parts"]:
        part = Part(
            str(one["name"]),
            str(one["table"]),
            str(one["first"]),
            str(one["last"]),
            int(one["runs"]),
            int(one["csv_bytes"]),
            {str(name): int(size) for name, size in one["sizes"].items()},
            {str(name): int(check) for name, check in one["footers"].items()},
            float(one["written"]),
        )
        if check_relative(part.name)[0] != TABLES or {*part.sizes} != {*NAMES} or {*part.footers} != {*NAMES}:
            raise ValueError(f"{part.name!r} is not a part")
        parts.append(part)
    return parts


def warn(message: str) -> None:
    """Tell of a fault of the lake, once a place; nothing but time is lost by it."""
    warnings.warn(f"{message}\nhint: rla lake build", stacklevel=3)


@contextmanager
def open_file(data_root: Path, part: Part, name: str) -> Iterator[BinaryIO]:
    """One file of a part.

    Raises:
        BrokenFileError: it is not as it was written. OSError: it cannot be opened.
    """
    with (
        held_folder(data_root, f"{LAKE}/{part.name}") as folder,
        open_plain(folder / f"{name}.parquet") as file,
    ):
        size = os.fstat(file.fileno()).st_size
        if size != part.sizes[name] or size > MAX_FILE_BYTES:
            raise BrokenFileError(
                f"{LAKE}/{part.name}/{name}.parquet", "it has another size than was written"
            )
        if _footer_check(file, size) != part.footers[name]:
            raise BrokenFileError(f"{LAKE}/{part.name}/{name}.parquet", "its footer is damaged")
        yield file


def _footer_check(file: BinaryIO, size: int) -> int:
    """Checksum of a Parquet file's footer, whose length stands before the last four bytes."""
    file.seek(max(size - FOOTER_END, 0))
    length = int.from_bytes(file.read(FOOTER_END)[:4], "little") + FOOTER_END
    file.seek(max(size - min(length, MAX_FOOTER_BYTES), 0))
    check = zlib.crc32(file.read(min(length, MAX_FOOTER_BYTES)))
    file.seek(0)
    return check


def plain_path(data_root: Path, part: Part, name: str) -> str:
    """Path of a part's file, for programs that open files themselves; checked as `open_file` does.

    Raises:
        BrokenFileError, OSError: as `open_file`.
    """
    with open_file(data_root, part, name):
        return f"{data_root}/{LAKE}/{part.name}/{name}.parquet"


class Builder:
    """The right to change a lake; see `building`."""

    def __init__(self, data_root: Path) -> None:
        self._root = data_root
        self.parts = read_parts(data_root)
        self._before = {part.name for part in self.parts}

    def new_name(self, table: str, day: str) -> str:
        """A name for a part that nobody has."""
        return f"{TABLES}/{table}/{day.replace('/', '-')}-{secrets.token_hex(6)}"

    def write(self, part: str, name: str, write: Callable[[BinaryIO], None]) -> tuple[int, int]:
        """Write a file of a new part durably; its size, and the checksum of its footer.

        Raises:
            OSError: it could not be written; nothing of it stays.
        """
        with held_folder(self._root, f"{LAKE}/{part}", create=True) as folder:
            path = folder / f"{name}.parquet"
            with atomic_file(path) as file:
                write(file)
            with open_plain(path) as written:
                size = os.fstat(written.fileno()).st_size
                return size, _footer_check(written, size)

    def fetch(self, part: Part, name: str) -> None:
        """Have a file of a part here, where `open_file` finds it; a lake on this disk always has."""

    def publish(self, parts: list[Part]) -> None:
        """From now on these parts count."""
        content = {"format": FORMAT, "catalogue": VERSION, "parts": [asdict(part) for part in parts]}
        self.put_manifest(json.dumps(content, separators=(",", ":")).encode())
        self.parts = parts

    def put_manifest(self, data: bytes) -> None:
        """Replace the manifest."""
        with held_folder(self._root, LAKE, create=True) as folder:
            write_atomic(folder / MANIFEST, data)

    def sweep(self) -> None:
        """Delete parts that neither count nor counted when this build began: those may still be read."""
        with held_folder(self._root, LAKE) as top:
            for name in os.listdir(top):
                if name.startswith(TEMP_PREFIX):
                    os.unlink(top / name)
        keep = self._before | {part.name for part in self.parts}
        base = Path(self._root, LAKE)
        for folder, folders, names in os.walk(base / TABLES):
            here = os.path.relpath(folder, base)
            if here in keep:
                folders.clear()
            elif any(name.endswith(".parquet") or name.startswith(TEMP_PREFIX) for name in names) or (
                not folders and here != TABLES
            ):
                folders.clear()
                discard(self._root, f"{LAKE}/{os.path.dirname(here)}", os.path.basename(here))

    def drop(self) -> None:
        """Delete the lake, the manifest first."""
        with held_folder(self._root, LAKE) as folder, suppress(FileNotFoundError):
            os.unlink(folder / MANIFEST)
        discard(self._root, LAKE, TABLES)
        self.parts = []


@contextmanager
def building(data_root: Path) -> Iterator[Builder | None]:
    """Hold the lake for a change; None where another process does.

    Raises:
        DatabaseError: it cannot be written here.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with held_folder(data_root, LAKE, create=True) as folder:
            descriptor = os.open(folder / "lock", flags, 0o666)
    except (OSError, UnsafeNameError) as error:
        raise DatabaseError(f"{data_root}/{LAKE} cannot be written: {error}") from error
    try:
        yield Builder(data_root) if try_lock(descriptor) else None
    finally:
        os.close(descriptor)
