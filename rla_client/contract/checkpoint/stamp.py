"""Save stamp in a checkpoint file.

It is a record of the zip that names the save. A replay recognizes finished work by it, and retention counts
only our own files.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from rla_client.contract.checkpoint.torch_zip import EXTRA_HEADER
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.job.arena_layout import ALIGNMENT
from rla_client.contract.job.job_fields import int64_field, text_field, token_field

CHECKPOINT_VERSION = 1
STAMP_RECORD = ".data/rla.json"
STAMP_MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Stamp:
    """Stamp of a finished file.

    Attributes:
        token: names the job.
        order: nanoseconds since 1970 at the call; the later of two saves is the newer one.
        run: the run that saved it. Files of other runs (copied by a fork) are left alone.
    """

    token: str
    order: int
    run: str
    name: str
    time_step: int
    metrics: Mapping[str, float]

    def encode(self) -> bytes:
        """JSON, as it stands in the file."""
        metrics = {key: repr(value) for key, value in self.metrics.items()}
        fields = {"format": CHECKPOINT_VERSION, **self.to_fields(), "metrics": metrics}
        return json.dumps(fields, sort_keys=True).encode("ascii")

    def to_fields(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @classmethod
    def decode(cls, data: bytes) -> Stamp:
        """Read it back.

        Raises:
            RemoteProtocolError: these bytes are no stamp.
        """
        try:
            fields = json.loads(data)
            metrics = {str(key): float(value) for key, value in fields["metrics"].items()}
            return cls.from_fields(fields, metrics)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise RemoteProtocolError(f"not the stamp of a checkpoint: {error}") from error

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], metrics: Mapping[str, float]) -> Stamp:
        """Check all but the metrics.

        Raises:
            RemoteProtocolError: something is missing, or not what `to_fields` makes.
        """
        return cls(
            token=token_field(fields.get("token")),
            order=int64_field(fields.get("order"), "order"),
            run=text_field(fields.get("run"), "run"),
            name=text_field(fields.get("name"), "name"),
            time_step=int64_field(fields.get("time_step"), "time_step"),
            metrics=metrics,
        )


_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_DIRECTORY_ENTRY = struct.Struct("<4s6H3L5H2L")
_ENTRY_MAGIC = b"PK\x01\x02"
_TAIL_BYTES = 1 << 10  # the last entry of the directory, which is the stamp's, and the end of the zip


def read_stamp(path: Path) -> Stamp | None:
    """The stamp of a checkpoint file; None when there is no such file or it has none."""
    try:
        with open(os.open(path, READ_FLAGS), "rb", buffering=0) as file:
            return stamp_in(file)
    except (OSError, ValueError):
        return None


def stamp_in(file: RawIOBase) -> Stamp | None:
    """The stamp in an open checkpoint file; None when it has none.

    It is the last record of the zip, so that two short reads suffice, however many tensors there are.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return Stamp.decode(_last_record(file))
    except (ValueError, struct.error, RemoteProtocolError):
        pass  # somebody added to the zip
    try:
        with zipfile.ZipFile(BufferedReader(file)) as archive:
            for info in reversed(archive.infolist()):
                if info.filename.split("/", 1)[-1] == STAMP_RECORD and info.file_size <= STAMP_MAX_BYTES:
                    return Stamp.decode(archive.read(info))
    except (ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError, RemoteProtocolError):
        return None
    return None


def _last_record(file: RawIOBase) -> bytes:
    """Content of the zip's last record, where that is a stamp that lies below 4 GiB.

    Raises:
        ValueError, struct.error: it is not.
    """
    size = file.seek(0, os.SEEK_END)
    tail = _read_at(file, max(0, size - _TAIL_BYTES), _TAIL_BYTES)
    at = tail.rfind(_ENTRY_MAGIC)
    if at < 0:
        raise ValueError("no directory of a zip")
    entry = _DIRECTORY_ENTRY.unpack_from(tail, at)
    packing, crc, count, name_bytes, begin = entry[4], entry[7], entry[9], entry[10], entry[16]
    name = tail[at + _DIRECTORY_ENTRY.size :][:name_bytes]
    if packing != zipfile.ZIP_STORED or name.split(b"/", 1)[-1] != STAMP_RECORD.encode():
        raise ValueError("the last record is no stamp")
    if count > STAMP_MAX_BYTES or begin + _LOCAL_HEADER.size > size:
        raise ValueError("a stamp of that size or place is found in another way")
    around = _read_at(file, begin, _LOCAL_HEADER.size + name_bytes + ALIGNMENT + EXTRA_HEADER.size + count)
    *_, name_bytes, extra_bytes = _LOCAL_HEADER.unpack_from(around)
    data = around[_LOCAL_HEADER.size + name_bytes + extra_bytes :][:count]
    if zlib.crc32(data) != crc:
        raise ValueError("a damaged stamp")
    return data


def _read_at(file: RawIOBase, begin: int, count: int) -> bytes:
    file.seek(begin)
    return file.read(count) or b""
