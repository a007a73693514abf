"""Writer of torch's zip format without torch.

::

    archive/data.pkl        the skeleton pickle
    archive/byteorder       "little" or "big"
    archive/data/<key>      the bytes of storage <key>
    archive/version         torch's number of this format, 3

Each record's data begins at a multiple of ALIGNMENT, by an extra field of zeros in its header, so that
`torch.load(mmap=True)` can map the file directly. The bytes are a pure function of the records.
`.format_version` is left out on purpose: with it torch computes record offsets by its own writer's rules.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from rla_client.contract.job.arena_layout import ALIGNMENT

if TYPE_CHECKING:
    from typing_extensions import Self


ZIP_TOP = "archive"  # folder in the zip file that a `.pt` is
ZIP_DATE = (1980, 1, 1, 0, 0, 0)  # of its entries: equal content gives equal bytes
TORCH_FORMAT = b"3\n"
_LOCAL_HEADER_BYTES = 30
_ZIP64_EXTRA_BYTES = 20
_ENTRY_BYTES = 46  # of the directory
_END_BYTES, _ZIP64_END_BYTES = 22, 56 + 20
_ZIP64_FROM = 1 << 30  # well below where zipfile would ask for it by itself
_PADDING_ID = 0x4246  # the id that torch's writer uses, "FB"
EXTRA_HEADER = struct.Struct("<HH")


class TorchZip:
    """A file being written: a context whose end writes the zip's directory."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._file = file

    def add(self, name: str, size: int, pieces: Iterable[bytes | memoryview]) -> None:
        """Write one record of `size` bytes that come in pieces; CRC-32 is computed on the way.

        Raises:
            ValueError: the pieces are not `size` bytes in all.
            OSError: the file cannot be written.
        """
        info = zipfile.ZipInfo(f"{ZIP_TOP}/{name}", ZIP_DATE)
        info.compress_type = zipfile.ZIP_STORED
        large = size >= _ZIP64_FROM
        info.extra = self._padding(len(info.filename.encode()), large=large)
        written = 0
        with self._zip.open(info, "w", force_zip64=large) as record:
            for piece in pieces:
                record.write(piece)
                written += len(piece)
        if written != size:
            raise ValueError(f"record {name} has {written} bytes instead of {size}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the directory; after an error only close the file."""
        if kind is None:
            self._zip.close()
            return
        with suppress(OSError, ValueError):
            self._zip.close()

    def _padding(self, name_bytes: int, *, large: bool) -> bytes:
        """The extra field after which data begins at a multiple of ALIGNMENT."""
        begin = self._file.tell() + _LOCAL_HEADER_BYTES + name_bytes + EXTRA_HEADER.size
        begin += _ZIP64_EXTRA_BYTES if large else 0
        zeros = -begin % ALIGNMENT
        return EXTRA_HEADER.pack(_PADDING_ID, zeros) + bytes(zeros)


def zip_bytes(records: Iterable[tuple[str, int]]) -> int:
    """Size of the file that TorchZip makes of these records, in bytes.

    Args:
        records: name and size in bytes of each, in their order.
    """
    at = directory = count = 0
    for name, size in records:
        large, path = size >= _ZIP64_FROM, f"{ZIP_TOP}/{name}".encode()
        fixed = _LOCAL_HEADER_BYTES + len(path) + EXTRA_HEADER.size + (_ZIP64_EXTRA_BYTES if large else 0)
        padding = -(at + fixed) % ALIGNMENT
        numbers = 2 * (size > zipfile.ZIP64_LIMIT) + (
            at > zipfile.ZIP64_LIMIT
        )  # too large for the old fields
        directory += _ENTRY_BYTES + len(path) + EXTRA_HEADER.size + padding
        directory += EXTRA_HEADER.size + 8 * numbers if numbers else 0
        at += fixed + padding + size
        count += 1
    end = _END_BYTES
    if count > zipfile.ZIP_FILECOUNT_LIMIT or max(at, directory) > zipfile.ZIP64_LIMIT:
        end += _ZIP64_END_BYTES
    return at + directory + end
