"""Checkpoints as blobs of the spool."""

from __future__ import annotations

import ctypes
import io
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rla_client.checkpoint.storage_table import Captured, Storage
from rla_client.contract.errors import NoCheckpointError
from rla_client.contract.filesystem.atomic_write import NEW_FLAGS
from rla_client.contract.process.descriptors import OwnFile, open_high

FREE_DISK_SHARE = 0.05  # of a disk that stay free


def read_at(file: io.BufferedReader, begin: int, size: int) -> bytearray:
    """`size` bytes of a blob.

    Raises:
        NoCheckpointError: it has less.
    """
    found = bytearray(size)
    file.seek(begin)
    if file.readinto(found) != size:
        raise NoCheckpointError("its blob was cut short")
    return found


def _write_storage(file: BinaryIO, storage: Storage) -> int:
    """Write the bytes of a storage; those of a device are copied to memory first.

    Raises:
        OSError: the disk refuses them.
    """
    address, nbytes, owner = storage
    if nbytes and not address:
        owner = owner.cpu()  # held until they are written
        address = owner.data_ptr()
    return file.write((ctypes.c_ubyte * nbytes).from_address(address))


def write_blob(captured: Captured, begins: Sequence[int], token: bytes, path: Path) -> int:
    """Write the bytes of a slot, then the token, to a new file without a sync; returns its size in bytes.

    Args:
        captured: its content.
        begins: offsets of each storage, and of the token.
        token: shows the agent that the file is complete.
        path: of the file.

    Raises:
        OSError: the disk refuses it.
    """
    with open(open_high(path, NEW_FLAGS), "wb") as file:
        at = file.write(captured.skeleton)
        for begin, storage in zip(begins, captured.storages, strict=False):
            at += file.write(bytes(begin - at))
            at += _write_storage(file, storage)
        at += file.write(bytes(begins[-1] - at))
        return at + file.write(token)


def sync_later(blob: Path) -> None:
    """Make a blob durable without waiting for it."""

    def sync() -> None:
        with suppress(OSError):  # the agent has taken it, or will report its fate
            sync_file(blob)

    with suppress(RuntimeError):  # no thread available: the kernel writes it later
        threading.Thread(target=sync, name="rla-blob-sync", daemon=True).start()


def has_room(folder: Path) -> bool:
    """Whether the disk of a folder may be filled further."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    return found.f_bavail > FREE_DISK_SHARE * found.f_blocks


def sync_file(path: Path) -> None:
    """Make a file's content durable.

    Raises:
        OSError: it is not sure to be.
    """
    with OwnFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as file:
        os.fsync(file.number)
