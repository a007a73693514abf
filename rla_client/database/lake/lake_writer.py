"""Writer of a lake.

Every file is written under a temp name, synced and renamed; the manifest is written last.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from rla_client.contract.errors import DatabaseError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, atomic_file, write_atomic
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.filesystem.safe_paths import discard, held_folder
from rla_client.contract.process.locks import try_lock
from rla_client.database.catalogue import VERSION
from rla_client.database.lake.manifest import FORMAT, LAKE, MANIFEST, TABLES, LakePart, read_parts
from rla_client.database.lake.part_files import footer_check


class Builder:
    """Writer of a locked lake; see `building`."""

    def __init__(self, data_root: Path) -> None:
        self._root = data_root
        self.parts = read_parts(data_root)
        self._before = {part.name for part in self.parts}

    def new_name(self, table: str, day: str) -> str:
        """A new, unique name of a part."""
        return f"{TABLES}/{table}/{day.replace('/', '-')}-{secrets.token_hex(6)}"

    def write(self, part: str, name: str, write: Callable[[BinaryIO], None]) -> tuple[int, int]:
        """Write one file of a new part durably; returns its size and the checksum of its footer.

        Raises:
            OSError: the file cannot be written; nothing of it stays.
        """
        with held_folder(self._root, f"{LAKE}/{part}", create=True) as folder:
            path = folder / f"{name}.parquet"
            with atomic_file(path) as file:
                write(file)
            with open_plain(path) as written:
                size = os.fstat(written.fileno()).st_size
                return size, footer_check(written, size)

    def fetch(self, part: LakePart, name: str) -> None:
        """Make a file of an old part available to `open_file`; does nothing for a lake on this disk."""

    def publish(self, parts: list[LakePart]) -> None:
        """Make these the parts of the lake."""
        content = {"format": FORMAT, "catalogue": VERSION, "parts": [asdict(part) for part in parts]}
        self.put_manifest(json.dumps(content, separators=(",", ":")).encode())
        self.parts = parts

    def put_manifest(self, data: bytes) -> None:
        """Replace the manifest."""
        with held_folder(self._root, LAKE, create=True) as folder:
            write_atomic(folder / MANIFEST, data)

    def sweep(self) -> None:
        """Delete parts outside this manifest and that of the start, whose parts may still be read."""
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
    """Lock the lake for a change; None if another process holds the lock.

    Raises:
        DatabaseError: the lake cannot be written.
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
