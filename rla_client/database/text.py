"""Text for terminals, pipes, files and notebooks: tables, numbers, JSON. Colours on a terminal alone.

Tables fit the width (of the terminal, or COLUMNS, or 80): columns that do not fit are dropped
from the right and counted below the table, long cells are cut with `…`. Everything printed
comes from files, so control characters are shown as `?` and never reach the terminal.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.text.csv_lines import LINE_END, NewlineEnds, rows_text
from rla_client.contract.text.duration_text import duration_text
from rla_client.contract.text.terminal_text import indented, text_width

if TYPE_CHECKING:
    import pandas as pd

    from rla_client.database.records import Record

FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}  # of a file with a table
MAX_CELL = 40  # characters; the rest of a long value is one `rla show` away
MAX_WHOLE_CELL = 120  # in a pipe, wider than most runs' indices; a longer value shifts its own line alone
MIN_CELL = 6
WHOLE = 1 << 20  # room for everything
MAX_WHOLE = 2.0**53  # up to here each whole number is a float of its own
_Value = TypeVar("_Value")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STATE_COLOURS = {
    "running": "32",
    "finished": "36",
    "interrupted": "33",
    "failed": "31",
    "killed": "31",
    "stalled": "33",
    "unknown": "33",
    "silent": "33",
    "waiting": "33",
}


def width() -> int:
    """Columns that output may take."""
    return max(shutil.get_terminal_size((80, 24)).columns, 20)


@cache
def colours() -> bool:
    """Whether the output may hold colours."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def clean(value: object) -> str:
    """A value as one line of text without control characters."""
    if value is None:
        return "-"
    if type(value) is int:
        return repr(value)
    if type(value) is float:
        return f"{value:.6g}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    if text.isprintable():  # surrogates are not
        return text
    text = text.encode("utf-8", "replace").decode()
    return _CONTROL.sub("?", text)


def lines_text(text: str) -> str:
    """Lines of a file as they are, tabs too, but without other control characters."""
    rows = text.removesuffix("\n").split("\n")
    return "\n".join("\t".join(map(clean, row.removesuffix("\r").split("\t"))) for row in rows)


def cut(text: str, room: int) -> str:
    """A text in at most `room` columns."""
    if text_width(text) <= room:
        return text
    kept, used = [], 1
    for mark in text:
        used += text_width(mark)
        if used > room:
            break
        kept.append(mark)
    return "".join(kept) + "…"


def table_text(names: Sequence[str], rows: Sequence[Sequence[object]], room: int | None = None) -> str:
    """An aligned table, numbers to the right; a note where a terminal has no room for all columns."""
    whole = room is None and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    room = WHOLE if whole else width() if room is None else room
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]
    texts = [[clean(name), *map(clean, column)] for name, column in zip(names, columns, strict=True)]
    most = MAX_WHOLE_CELL if whole else MAX_CELL
    widths = [min(max(_widths(column)), most) for column in texts]
    shown = _fitting(widths, room)
    if shown < len(names) and shown:
        left = room - sum(widths[:shown]) - 2 * shown
        if left >= MIN_CELL:
            widths[shown] = left
            shown += 1
    aligned = [
        _aligned(texts[place], widths[place], to_right=_all_numbers(columns[place]), whole=whole)
        for place in range(shown)
    ]
    lines = ["  ".join(line).rstrip() for line in zip(*aligned, strict=True)]
    if shown < len(names):
        hidden = ", ".join(column[0] for column in texts[shown:])
        lines.append(cut(f"(not shown for want of room: {hidden}; --json has all)", room))
    return "\n".join(lines)


def _widths(texts: Sequence[str]) -> list[int]:
    """Columns that each text takes; whole columns of ASCII at once, 10,000 rows in 2 ms."""
    return list(map(len if "".join(texts).isascii() else text_width, texts))


def _aligned(texts: list[str], wide: int, *, to_right: bool, whole: bool) -> list[str]:
    """Texts filled up to a width, and cut to it unless they are to stay whole."""
    found = _widths(texts)
    if max(found) > wide and not whole:
        texts = [cut(text, wide) for text in texts]
        found = _widths(texts)
    gaps = [" " * (wide - used) for used in found]
    if colours():
        texts = list(map(_coloured, texts))
    pairs = zip(gaps, texts, strict=True) if to_right else zip(texts, gaps, strict=True)
    return [first + second for first, second in pairs]


def _fitting(widths: list[int], room: int) -> int:
    used = 0
    for count, wide in enumerate(widths):
        used += wide + (2 if count else 0)
        if used > room:
            if count == 0:
                widths[0] = room
                return 1
            return count
    return len(widths)


def _all_numbers(column: Sequence[object]) -> bool:
    kinds = set(map(type, column)) - {type(None)}
    if kinds <= {int, float}:
        return bool(kinds)
    return all(_looks_like_number(value) for value in column if value is not None)


def _looks_like_number(value: object) -> bool:
    if isinstance(value, str):
        return value[-1:].isdecimal() and value.lstrip("-").replace(".", "", 1).isdecimal()
    return isinstance(value, int | float) and not isinstance(value, bool)


def _coloured(text: str) -> str:
    code = _STATE_COLOURS.get(text)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def pairs_text(pairs: Mapping[str, object], *, whole: bool = False) -> str:
    """`name  value` lines; a value that is too long is cut, or as a `whole` continues below itself."""
    room = width()
    names = [clean(name) for name in pairs]
    wide = min(max((text_width(name) for name in names), default=0), max(room // 2 - 4, 8))
    lines = []
    for name, value in zip(names, pairs.values(), strict=True):
        head = cut(name, wide)
        head += " " * (wide - text_width(head))
        before = f"  {head}  "
        if whole:
            parts = str(value).splitlines() if isinstance(value, str) else [value]
            texts = [
                indented(clean(part), room, " " * text_width(before), " " * text_width(before))
                for part in parts
            ]
            lines.append(before + "\n".join(texts)[text_width(before) :])
        else:
            lines.append(before + cut(clean(value), room - wide - 4))
    return "\n".join(lines)


def json_text(value: object) -> str:
    """JSON of plain data; what is none becomes text, and so do NaN and infinities, which JSON has not."""
    try:
        return json.dumps(value, default=str, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), default=str, indent=1, ensure_ascii=False)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """CSV with a header, without the last newline."""
    return rows_text([names, *rows]).removesuffix("\n")


def write_table(frame: pd.DataFrame, path: Path, form: str | None) -> str:
    """Write a DataFrame whole or not at all.

    Args:
        frame: rows.
        path: the file; its folder exists.
        form: csv, jsonl or parquet; None goes by the file's ending.

    Returns:
        The form.

    Raises:
        ArgumentError: an unknown form.
        DatabaseError: parquet without a library for it.
    """
    chosen = form or FORMATS.get(path.suffix, "")
    if chosen not in FORMATS.values():
        message = f"the form of {path} is not known; end it in {', '.join(FORMATS)} or give --format"
        raise ArgumentError(message)
    with replacing(path, durable=False) as temp:
        if chosen == "csv":
            with temp.open("w", encoding="utf-8", newline="") as file:
                _with_tags_as_text(frame).to_csv(NewlineEnds(file), index=False, lineterminator=LINE_END)
        elif chosen == "jsonl":
            _write_jsonl(frame, temp)
        else:
            _write_parquet(frame, temp)
    return chosen


def _with_tags_as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Tags joined by commas, as a cell can hold them; none is an empty cell."""
    if "tags" not in frame.columns:
        return frame
    texts = [",".join(tags) if isinstance(tags, list) else tags for tags in frame["tags"]]
    changed: pd.DataFrame = frame.assign(tags=texts)
    return changed


def _write_jsonl(frame: pd.DataFrame, path: Path) -> None:
    names = list(frame.columns)
    with path.open("w", encoding="utf-8") as file:
        for row in frame.itertuples(index=False, name=None):
            cells = {name: _json_value(value) for name, value in zip(names, row, strict=True)}
            file.write(json.dumps(cells, ensure_ascii=False, default=str) + "\n")


def _json_value(value: object) -> object:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    plain = frame.copy()
    for name in plain.columns:
        if plain[name].dtype == object:  # one column holds one type
            plain[name] = plain[name].map(
                lambda value: value if isinstance(value, str) else json.dumps(value, default=str)
            )
    with extra("parquet", "parquet"):
        import pyarrow as pa  # noqa: F401 - pandas' own message does not name the extra
    plain.to_parquet(path, index=False)


def bytes_text(count: float) -> str:
    """`12 B`, `3.4 kB`, `5.6 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:  # noqa: PLR2004
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def plain(value: _Value) -> _Value | int:
    """Time-steps that are whole as ints, for people; the last digits of a larger number mean nothing."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < MAX_WHOLE else value


def _escaped(text: str) -> str:
    from html import escape

    return escape(text)


def _cell(value: object) -> str:
    return _escaped(clean(value))


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_cell(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _pairs(title: str, pairs: Mapping[str, object]) -> str:
    return f"<b>{_cell(title)}</b>{_table(['name', 'value'], list(pairs.items()))}" if pairs else ""


def database_html(data_root: Path, records: Sequence[Record], now: float) -> str:
    """Some runs of a database, given oldest first."""
    rows = [
        [
            r.date,
            r.table,
            r.shown_state(now),
            plain(r.time_step),
            duration_text(r.duration_s),
            " ".join(r.tags),
        ]
        for r in reversed(records)
    ]
    title = f"<b>{_escaped(str(data_root))}</b>, newest {len(records)} runs"
    return title + _table(["run", "table", "state", "time-step", "took", "tags"], rows)


def run_html(record: Record, now: float) -> str:
    """State, hyper-parameters and last values of one run."""
    facts = {
        "state": record.shown_state(now),
        "time-step": plain(record.time_step),
        "took": duration_text(record.duration_s),
    }
    facts |= {"tags": " ".join(record.tags), "note": record.note}
    title = f"<b>{_escaped(f'{record.table}/{record.index}')}</b>"
    return (
        title
        + _table(list(facts), [list(facts.values())])
        + _pairs("hyper-parameters", record.hyper.flat())
        + _pairs("last values", dict(record.metrics))
    )
