"""Writer of one rank's shard files."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rla_client.checkpoint.shard_capture import records
from rla_client.checkpoint.shard_plan import Placed, ShardPiece
from rla_client.checkpoint.torch_names import torch_module
from rla_client.contract.checkpoint.torch_zip import TorchZip
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.process.descriptors import open_high
from rla_client.contract.sharded_checkpoint.records import KeptFile

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # for annotations alone, from 3.12 on


READ_BYTES = 1 << 20
BytesOf = "Callable[[ShardPiece], memoryview | bytes]"


class _Section(io.RawIOBase):
    """A file that begins at an offset of another one."""

    def __init__(self, file: BinaryIO, begin: int) -> None:
        self._file, self._begin = file, begin
        file.seek(begin)

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell() - self._begin

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset + (self._begin if whence == os.SEEK_SET else 0), whence) - self._begin

    def write(self, data: Buffer) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        """Nothing: the file is flushed once."""


def write_shard(
    folder: Path, name: str, placed: Sequence[Placed], bytes_of: Callable[[ShardPiece], memoryview | bytes]
) -> KeptFile:
    """Write a rank's pieces durably at the offsets of the plan.

    Raises:
        OSError: the disk refuses it.
        ValueError: a piece has another length than planned.
    """
    with open(
        open_high(folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, file_mode(folder)),
        "w+b",
    ) as file:
        for one in placed:
            data = bytes_of(one.piece)
            if one.piece.kind == "bytes":
                file.seek(one.offset)
                file.write(data)
            else:
                _write_tensor(file, one, data)
            if file.tell() != one.offset + one.length:
                raise ValueError(f"{one.piece.key} takes {file.tell() - one.offset} bytes, not {one.length}")
        file.flush()
        os.fsync(file.fileno())
        return _kept(file, name)


def _write_tensor(file: BinaryIO, one: Placed, data: memoryview | bytes) -> None:
    dtype = getattr(torch_module(), one.piece.dtype)
    with TorchZip(_Section(file, one.offset)) as zipped:  # type: ignore[arg-type]
        for name, size, content in records(one.piece.sizes, dtype):
            zipped.add(name, size, [data if content is None else content])
    file.seek(0, os.SEEK_END)


def write_kept(folder: Path, name: str, data: bytes) -> KeptFile:
    """Write a small file of the save durably.

    Raises:
        OSError: the disk did not take it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(open_high(folder / name, flags, file_mode(folder)), "w+b") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return KeptFile(name, len(data), hashlib.sha256(data).hexdigest())


def _kept(file: BinaryIO, name: str) -> KeptFile:
    """Size and hash of a written file, which is read again, since zips are patched at earlier offsets."""
    digest, size = hashlib.sha256(), 0
    file.seek(0)
    buffer = memoryview(bytearray(READ_BYTES))
    while count := file.readinto(buffer):  # type: ignore[attr-defined]
        digest.update(buffer[:count])
        size += count
    return KeptFile(name, size, digest.hexdigest())
