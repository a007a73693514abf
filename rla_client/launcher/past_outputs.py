"""Earlier outputs of an experiment that continues.

The agent never appends to files of an earlier stream: it renames them to `progress.old-1.csv` and so on,
and begins new ones. So a resumed run sends the kept rows again, with their time-steps and timestamps, and
then its own. An output is a pure function of the frames: the new progress.csv begins with the bytes of the
old one, and so does TensorBoard's file; the renamed files keep the rows that were cut off. Old event files
get a name that TensorBoard ignores. After a resume that was killed while it sent rows, the next resume
reads the renamed file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.contract.text.csv_lines import stream_rows

CSV_NAME = "progress.csv"
EVENT_MARK = ".tfevents."
TEXT_PIECE_BYTES = 1 << 20  # well below a frame's limit
_ASIDE = re.compile(r"progress\.old-(\d+)\.csv")
Value = int | float | bool | str
PastRow: TypeAlias = tuple[int | float, float, dict[str, Value]]  # time-step, timestamp, values


def past_rows(log_dir: Path, limit: int | None) -> list[PastRow]:
    """The first `limit` rows of the run's CSV (None: all).

    If the CSV has fewer, because a resume was interrupted, the newest renamed file with enough rows is
    read instead.
    """
    rows = list(_read(log_dir / CSV_NAME, limit))
    if limit is None or len(rows) >= limit:
        return rows
    for path in _put_aside(log_dir):
        older = list(_read(path, limit))
        if len(older) >= limit:
            return older
    return rows


def past_text(path: Path) -> Iterator[str]:
    """Content of a text log, in pieces."""
    with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace", newline="") as file:
        while piece := file.read(TEXT_PIECE_BYTES):
            yield piece


def hide_events(log_dir: Path) -> None:
    """Rename TensorBoard's files so that it shows only later ones."""
    for path in sorted(log_dir.rglob(f"*{EVENT_MARK}*")):
        for number in range(1, 10_000):
            hidden = path.with_name(path.name.replace(EVENT_MARK, f".old-{number}.", 1))
            if not hidden.exists():
                path.rename(hidden)
                break


def _put_aside(log_dir: Path) -> list[Path]:
    found = [(int(match[1]), name) for name in os.listdir(log_dir) if (match := _ASIDE.fullmatch(name))]
    return [log_dir / name for _number, name in sorted(found, reverse=True)]


def _read(path: Path, limit: int | None) -> Iterator[PastRow]:
    if not path.exists():
        return
    with open(path, newline="", encoding="utf-8", errors="replace") as file:
        rows = (row for row in stream_rows(file) if row)
        columns = next(rows, [])
        for number, row in enumerate(rows):
            if limit is not None and number >= limit:
                return
            cells = zip(columns, row, strict=False)
            values = {key: _plain_value(cell) for key, cell in cells if cell}
            step = values.pop(TIME_STEP, 0)
            stamp = values.pop(TIMESTAMP, 0.0)
            if isinstance(step, str) or isinstance(stamp, str):
                return  # neither this row nor a later one is ours
            yield step, float(stamp), values


def _plain_value(cell: str) -> Value:
    """Value of a CSV cell; numbers are exact."""
    if cell in {"True", "False"}:
        return cell == "True"
    for kind in (int, float):
        with suppress(ValueError):
            value = kind(cell)
            if repr(value) == cell:
                return value
    return cell
