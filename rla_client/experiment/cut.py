"""Cutting the outputs of an ended run back to its first rows, so that a resumed one appends.

Only for files whose streams the agent has finalised: it never looks at their former length
again. A cut file is written beside the old one and renamed, so a reader sees the one or the other.
Text logs are not cut: they tell what happened.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from rla_client.storage import write_atomic

_RECORD_HEAD = struct.Struct("<QI")  # length, CRC of the length; behind the data comes its CRC
_RECORD_TAIL_BYTES = 4
_ROW_TAG = b"\n\ttimestamp"  # field 1 (tag) of a Summary.Value, length 9: each row's event has one


def cut_outputs(log_dir: str | os.PathLike[str], rows: int) -> int:
    """Keep the first `rows` rows of progress.csv, progress.json and the TensorBoard events.

    Returns:
        How many rows the CSV has afterwards; fewer than `rows` when it had fewer.
    """
    folder = Path(log_dir)
    kept = _cut_csv(folder / "progress.csv", rows)
    _cut_lines(folder / "progress.json", rows)
    _cut_events(folder, rows)
    return kept


def _cut_csv(path: Path, rows: int) -> int:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    ends = csv_line_ends(data)
    if rows == 0:
        path.unlink()
        return 0
    if len(ends) > rows + 1:
        write_atomic(path, data[: ends[rows]])
    return max(0, min(rows, len(ends) - 1))


def csv_line_ends(data: bytes) -> list[int]:
    """Offset behind each whole line of a CSV; line breaks inside quotes end none."""
    ends: list[int] = []
    quoted = False
    for at, byte in enumerate(data):
        if byte == 0x22:  # a doubled quote inside quotes toggles twice
            quoted = not quoted
        elif byte == 0x0A and not quoted:
            ends.append(at + 1)
    return ends


def _cut_lines(path: Path, rows: int) -> None:
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) > rows:
        write_atomic(path, b"".join(lines[:rows]))


def _cut_events(folder: Path, rows: int) -> None:
    files = sorted(folder.rglob("events.out.tfevents.*"), key=lambda path: _event_order(path.name))
    left = rows
    for path in files:
        data = path.read_bytes()
        end, left = event_end(data, left)
        if end == 0:
            path.unlink()
        elif end < len(data):
            write_atomic(path, data[:end])


def _event_order(name: str) -> tuple[int, str]:
    parts = name.split(".")
    second = parts[3] if len(parts) > 3 and parts[3].isdigit() else "0"  # noqa: PLR2004 - events.out.tfevents.<sec>
    return int(second), name


def event_end(data: bytes, rows: int) -> tuple[int, int]:
    """Where an event file ends that keeps `rows` rows, and how many rows are left for later files.

    Records that are no rows (version, hyper-parameters) stay as long as rows are kept behind or
    before them; a file that gets none of its rows although none are left ends at 0.
    """
    at, left = 0, rows
    while at + _RECORD_HEAD.size <= len(data):
        length, _crc = _RECORD_HEAD.unpack_from(data, at)
        begin = at + _RECORD_HEAD.size
        following = begin + length + _RECORD_TAIL_BYTES
        if following > len(data):
            break
        if data.find(_ROW_TAG, begin, begin + length) >= 0:
            if left == 0:
                return (at if rows else 0), 0
            left -= 1
        at = following
    return at, left
