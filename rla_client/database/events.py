"""Reading TensorBoard event files: scalars by tag, with step, wall time and value.

A file is a series of records `length u64 | masked crc u32 | data | masked crc u32`; the data are
Event messages. Reading stops at the first torn record, as TensorBoard does. Scalars are simple
values, or tensors of one number as newer writers make them. Other summaries are passed over;
text summaries (hyper-parameters) are given as text.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.files import open_plain
from rla_client.run.readers import MAX_RECORD_BYTES

_HEAD = struct.Struct("<QI")
_NUMBERS = {1: ("float_val", "f"), 2: ("double_val", "d"), 3: ("int_val", "i"), 9: ("int64_val", "q")}
_TEXT = 7


@dataclass(frozen=True, slots=True)
class Point:
    """One value of one tag: a number, or text."""

    tag: str
    step: int
    wall_time: float
    value: float | str


def event_files(folder: Path) -> list[Path]:
    """Event files directly in a folder, in the order in which they were begun."""
    return sorted(path for path in folder.iterdir() if ".tfevents." in path.name and path.is_file())


def read_points(path: str | os.PathLike[str]) -> Iterator[Point]:
    """All scalar and text points of one file, up to the first torn record.

    Raises:
        BrokenFileError: it is a pipe, a device or a folder.
        OSError: it cannot be opened.
    """
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorboardX.proto.event_pb2 import Event

    with open_plain(path, links=True) as file:
        while True:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            length = _HEAD.unpack(head)[0]
            if length > MAX_RECORD_BYTES:
                return
            data = file.read(length + 4)
            if len(data) < length + 4:
                return
            event = Event()
            try:
                event.ParseFromString(data[:length])
            except DecodeError:
                return
            for value in event.summary.value:
                found = _value(value)
                if found is not None:
                    yield Point(value.tag, int(event.step), float(event.wall_time), found)


def _value(value: Any) -> float | str | None:  # noqa: ANN401 - a protobuf message
    which = value.WhichOneof("value")
    if which == "simple_value":
        return float(value.simple_value)
    if which != "tensor":
        return None
    tensor = value.tensor
    if tensor.dtype == _TEXT and tensor.string_val:
        return bytes(tensor.string_val[0]).decode("utf-8", "replace")
    if tensor.dtype not in _NUMBERS:
        return None
    field, code = _NUMBERS[tensor.dtype]
    numbers = list(getattr(tensor, field))
    if not numbers and len(tensor.tensor_content) == struct.calcsize(code):
        numbers = list(struct.unpack("<" + code, tensor.tensor_content))
    return float(numbers[0]) if len(numbers) == 1 else None
