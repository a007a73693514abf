"""Tables that a run left in its results, as pages of sorted rows.

A table is read anew for each question, as far as its bounds; what an answer leaves out it says.
"""

from __future__ import annotations

import csv
import io
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, BinaryIO

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import OTHER_RESULTS
from rla_client.web.file_text import readable
from rla_client.web.item_files import asked_run, item_file
from rla_client.web.page_json import SAFE_INTEGER, sent
from rla_client.web.request_arguments import is_texts
from rla_client.web.run_registry import Site

ENDINGS = frozenset({"csv", "tsv", "jsonl", "ndjson", "parquet"})  # of files that are tables
MAX_BYTES = 32 << 20  # of a file that are read
MAX_ROWS = 200_000
MAX_COLUMNS = 500
MAX_CELL = 2000  # characters that are sent of one cell
MAX_SENT = 500  # rows of one answer
BATCH_ROWS = 1000
Row = Sequence[Any]
_COMPARED = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(.+)", re.DOTALL)
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def table(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Some rows of a table.

    Args:
        site: whose runs.
        asked: `run`, `path` below its results; where wanted `search` (a text that a row holds), `filters`
            (column's place → a part of its cell's text, or `> 3`), `sort` (column's place), `down`, `from`,
            `count`.

    Returns:
        `columns`, `rows`, `fitting` (how many pass), `total` (how many were read), `cut` (there are more).

    Raises:
        ArgumentError: it is no table, or a question is not as it should be.
    """
    path = str(asked.get("path"))
    with item_file(site, asked_run(site, asked), OTHER_RESULTS, path) as file:
        columns, rows, cut = _read(path, file)
    total = len(rows)
    for test in _tests(asked, len(columns)):
        rows = [row for row in rows if test(row)]
    sort = asked.get("sort")
    if sort is not None:
        place = _place(sort, len(columns))
        rows.sort(key=lambda row: _order(row[place]), reverse=asked.get("down") is True)
        rows.sort(key=lambda row: row[place] is None or row[place] == "")  # what is not there stands last
    first, count = (_whole(asked, name, default) for name, default in (("from", 0), ("count", 100)))
    shown = rows[first : first + min(count, MAX_SENT)]
    return {
        "columns": columns,
        "rows": [[_sent(cell) for cell in row] for row in shown],
        "fitting": len(rows),
        "total": total,
        "cut": cut,
    }


def _read(path: str, file: BinaryIO) -> tuple[list[str], list[Row], bool]:
    """Names of the columns, the rows, and whether there is more than was read."""
    suffix = path.rpartition(".")[2].lower()
    if suffix == "parquet":
        return _read_parquet(file)
    if suffix not in ENDINGS:
        raise ArgumentError(f"{path[:200]} is no table that is shown here: CSV, TSV, JSON lines, Parquet")
    data = file.read(MAX_BYTES + 1)
    cut = len(data) > MAX_BYTES
    if cut:
        data = data[: data.rfind(b"\n", 0, MAX_BYTES) + 1]
    text = readable(data.replace(b"\r\n", b"\n"))
    if suffix in {"csv", "tsv"}:
        lines = _csv_rows(text, "\t" if suffix == "tsv" else ",")
        columns = [str(cell) for cell in next(lines, [])][:MAX_COLUMNS]
        rows = list(islice(lines, MAX_ROWS + 1))
    else:
        objects = list(islice(_objects(text), MAX_ROWS + 1))
        columns = list(dict.fromkeys(str(name) for one in objects for name in one))[:MAX_COLUMNS]
        rows = [[one.get(name) for name in columns] for one in objects]
    width = len(columns)
    whole: list[Row] = [[*row[:width], *[None] * (width - len(row))] for row in rows[:MAX_ROWS]]
    return columns, whole, cut or len(rows) > MAX_ROWS


def _csv_rows(text: str, delimiter: str) -> Iterator[list[Any]]:
    limit = csv.field_size_limit(MAX_BYTES)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except csv.Error as error:
        raise ArgumentError(f"this is no CSV: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects of JSON lines; of another line one object with its text."""
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = line
        yield found if isinstance(found, dict) else {"line": found}


def _read_parquet(file: BinaryIO) -> tuple[list[str], list[Row], bool]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional library
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise ArgumentError("a Parquet file needs pyarrow to be shown: pip install pyarrow") from error
    try:
        source = pq.ParquetFile(file)
        columns = [str(name) for name in source.schema_arrow.names][:MAX_COLUMNS]
        rows: list[Row] = []
        for batch in source.iter_batches(BATCH_ROWS):
            values = [batch.column(place).to_pylist() for place in range(len(columns))]
            rows.extend(zip(*values, strict=True))
            if len(rows) > MAX_ROWS or batch.nbytes > MAX_BYTES:
                break
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ArgumentError(f"this Parquet file cannot be read: {str(error)[:300]}") from error
    return columns, rows[:MAX_ROWS], source.metadata.num_rows > min(len(rows), MAX_ROWS)


def _tests(asked: dict[str, Any], width: int) -> list[Callable[[Row], bool]]:
    """What rows must pass."""
    found: list[Callable[[Row], bool]] = []
    if words := asked.get("search"):
        wanted = str(words).lower()
        found.append(lambda row: any(wanted in _text(cell).lower() for cell in row))
    filters = asked.get("filters") or {}
    if not isinstance(filters, dict) or not is_texts(list(filters.values())):
        raise ArgumentError("filters are texts by the place of their column")
    for name, text in filters.items():
        if text.strip():
            found.append(_column_test(_place(name, width), text))
    return found


def _column_test(place: int, text: str) -> Callable[[Row], bool]:
    match = _COMPARED.fullmatch(text)
    if match is None:
        wanted = text.strip().lower()
        return lambda row: wanted in _text(row[place]).lower()
    compare, (kind, limit) = _COMPARE[match[1]], _order(match[2].strip())

    def test(row: Row) -> bool:
        own_kind, own = _order(row[place])
        return compare(own, limit) if own_kind == kind else match[1] == "!="

    return test


def _order(cell: object) -> tuple[int, Any]:
    """Numbers by size, also where texts spell them; then texts."""
    try:
        number = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 1, _text(cell).lower()
    return (1, "nan") if math.isnan(number) else (0, number)


def _text(cell: object) -> str:
    if cell is None:
        return ""
    plain = sent(cell)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _sent(cell: object) -> object:
    if isinstance(cell, bool) or (isinstance(cell, int) and abs(cell) < SAFE_INTEGER) or cell is None:
        return cell
    if isinstance(cell, float) and math.isfinite(cell):
        return cell
    text = _text(cell)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"


def _place(value: object, width: int) -> int:
    text = str(value)
    if not text.isdecimal() or len(text) > 4 or int(text) >= width:  # noqa: PLR2004 - digits
        raise ArgumentError(f"there is no column {text[:20]}")
    return int(text)


def _whole(asked: dict[str, Any], name: str, default: int) -> int:
    value = asked.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ArgumentError(f"{name} must be a whole number")
    return value
