"""Import of runs from text tables.

Each run is one table: CSV, TSV, or progress.txt of other programs. Names and cells are stripped. The
column `time-step` is a copy of the column in which the program counts its steps, found by its name
(`STEP_NAMES`, in any case and punctuation), preferably one that never falls; for SB3's monitor it is the
cumulative length of its episodes; else it is the row's number. A remark says which. Rows that do not fit
the header (longer rows, rows of a second header, a torn last row) are left out and counted. Parameters
come from files beside the table (`PARAMETERS_BESIDE`), and for SB3's monitor from its first line.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.plain_files import open_plain, read_small, written_bytes
from rla_client.contract.layout import TIME_STEP
from rla_client.contract.spool.protocol import MAX_KEYS_PER_ROW
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.contract.text.csv_lines import split_rows
from rla_client.database.curves.csv_tail import quoted_lines
from rla_client.database.imports.item_writer import MAX_CELLS
from rla_client.database.imports.source import Look, RunContent, look
from rla_client.database.records.record_reader import MAX_TIME
from rla_client.run.parameters.parameter_reader import parse_yaml

MAX_CSV_BYTES = 256 << 20  # of one table; its cells take about ten times as much memory
MAX_SHOWN = 100  # characters of a column's name in a remark
# Letters and digits of names, best clock first: environment steps, then updates, then epochs.
STEP_NAMES = (
    "timestep", "totalenvsteps", "timetotaltimesteps", "rollouttotaltimesteps", "misctotaltimesteps",
    "totaltimesteps", "timesteps", "timestepstotal", "numtimesteps", "numenvstepssampledlifetime",
    "numenvstepssampled", "numenvsteps", "envsteps", "envstep", "totalenvinteracts", "totalsteps",
    "totalnumsteps", "globalstep", "globalsteps", "numsteps", "environmentsteps", "numagentstepssampled",
    "agenttimestepstotal", "timestepssofar", "numstepssampled", "nenvsteps", "numstepstotal", "totalstep",
    "nsteps", "totalframes", "numframes", "envframes", "frames", "frame", "steps", "step", "actorsteps",
    "learnersteps", "gradientsteps", "trainingsteps", "trainstep", "trainsteps", "trainingstep",
    "timeiterations", "trainingiteration", "iterations", "iteration", "iters", "iter", "itr", "nupdates",
    "numupdates", "miscnupdates", "updates", "update", "epochs", "epoch", "episodes", "episode",
)  # fmt: skip
PARAMETERS_BESIDE = (  # Lightning; RLlib; Spinning Up; Ultralytics
    "hparams.yaml", "params.json", "config.json", "config.yaml", "args.yaml", "args.json",
)  # fmt: skip
TEXT_TABLE = "progress.txt"  # of Spinning Up
_MONITOR_START = "t_start"
_MONITOR_LENGTH = "l"
_MONITOR_COLUMNS = ("r", _MONITOR_LENGTH, "t")
_BY_LENGTHS = "the time-step is the sum of the column 'l' up to the row, as SB3 plots it"
_BY_NUMBER = "the time-step is the number of the row: no column that counts steps has a number in each"
_LINE = re.compile(r"[^\r\n]+")
_WITH_POINT, _WITH_COMMA = (re.compile(rf"\s*[-+]?\d*{mark}\d+(?:[eE][-+]?\d+)?\s*") for mark in (r"\.", ","))
_COMMENTS = re.compile(r"\A(?:#[^\r\n]*(?:\r\n?|\n|\Z))+")
_EXCEL = re.compile(r'\A"?sep=([^"\r\n])"?(?:\r\n?|\n)', re.IGNORECASE)  # names the separator
_NAME = re.compile(r"[A-Za-z_][^=\[\]{}\"]*")
_NO_NAMES = frozenset({"nan", "inf", "infinity", "none", "null", "na", "n/a", "true", "false"})


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A foreign table.

    Attributes:
        columns: unique names, none of them empty.
        rows: rows, with as many cells as columns.
        left_out: number of rows that do not fit the columns.
        about: parameters in the first line of SB3's monitor.
    """

    columns: list[str]
    rows: list[list[str]]
    left_out: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """A remark if rows were left out."""
        return [f"left out {self.left_out} row(s) that do not fit the header"] if self.left_out else []


def find_csv(folder: Path) -> Iterator[Look]:
    """Each CSV or TSV file below a folder, and each progress.txt with a table."""
    patterns = ("*.csv", "*.tsv", TEXT_TABLE)
    paths = [folder] if folder.is_file() else sorted(path for one in patterns for path in folder.rglob(one))
    for path in paths:
        if path.is_file() and (path == folder or path.name != TEXT_TABLE or _is_table(path)):
            yield os.fspath(path), partial(look, _read, path, folder)


def _is_table(path: Path) -> bool:
    try:
        with open_plain(path, links=True) as file:
            return b"\t" in file.readline(1 << 20)
    except (OSError, BrokenFileError):
        return False


def _read(path: Path) -> tuple[float, RunContent]:
    table = read_table(path)
    columns, rows, remark = with_steps(table)
    params = {**_beside(path.parent), **table.about}
    began = params.pop(_MONITOR_START, None) if table.about else None
    if not isinstance(began, int | float) or not 0 < began < MAX_TIME:
        began = path.stat().st_mtime
    return began, RunContent(columns, rows, params, remarks=[remark, *table.remarks])


def _beside(folder: Path) -> dict[str, Any]:
    """Parameters from a file beside a table; empty if there is none, or if it cannot be read."""
    for name in PARAMETERS_BESIDE:
        with suppress(OSError, BrokenFileError, ValueError):
            data = read_small(folder / name)
            found = (
                parse_json(data) if name.endswith(".json") else parse_yaml(data.decode("utf-8", "replace"))
            )
            if isinstance(found, dict):
                return {str(key): value for key, value in found.items()}
    return {}


def read_table(path: Path) -> ForeignTable:
    """The table of a file; lines that begin with `#` before the header (SB3's monitor) are skipped.

    Raises:
        BrokenFileError: the file is too large, has too many columns, no header, or an unclosed quote.
    """
    with open_plain(path, links=True) as file:
        size = written_bytes(file)
        if size > MAX_CSV_BYTES:
            raise BrokenFileError(os.fspath(path), f"it is larger than {MAX_CSV_BYTES >> 20} MiB: split it")
        data = file.read(size)
    if data.startswith(b"\0"):
        raise BrokenFileError(
            os.fspath(path), "it begins with NUL bytes, as a power cut leaves it: it holds no table"
        )
    text = _decoded(data)
    separator_line = _EXCEL.match(text)
    text = text[separator_line.end() :] if separator_line else text
    comments = _COMMENTS.match(text)
    text = text[comments.end() :] if comments else text
    mark = separator_line[1] if separator_line else _separator(text)
    ended = text.endswith(("\n", "\r"))
    if count := quoted_lines((text if ended else f"{text}\n").encode(), mark):
        problem = f"a quote is never closed: the {count} lines behind it are one cell"
        raise BrokenFileError(os.fspath(path), problem)
    rows = [[cell.strip(" \t") for cell in row] for row in split_rows(text, mark)]
    rows = [row for row in rows if row and (len(row) > 1 or row[0])]
    if not rows:
        raise BrokenFileError(os.fspath(path), "it is empty")
    if len(rows[0]) > MAX_KEYS_PER_ROW or len(rows[0]) * len(rows) > MAX_CELLS:
        table = f"{len(rows[0])} columns in {len(rows)} rows"
        raise BrokenFileError(os.fspath(path), f"{table} are more than one progress.csv may have")
    if _has_no_names(rows):
        advice = "put a line with the names of the columns on top"
        raise BrokenFileError(os.fspath(path), f"its first line holds numbers instead of names: {advice}")
    if mark != "," and not any(_WITH_POINT.fullmatch(cell) for row in rows for cell in row):
        rows[1:] = [[_with_point(cell) for cell in row] for row in rows[1:]]
    torn = len(rows) > 1 and len(rows[-1]) < len(rows[0]) and not ended
    kept, left_out = _fitting(rows[0], rows[1:-1] if torn else rows[1:])
    left_out += torn
    return ForeignTable(_names(rows[0]), kept, left_out, _monitor(comments[0] if comments else ""))


def _decoded(data: bytes) -> str:
    """Text in UTF-8, or as programs on Windows write it: UTF-16 with a byte order mark, or cp1252."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").replace("\0", "?")
    data = data.replace(b"\0", b"?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("utf-8-sig" if data.startswith(codecs.BOM_UTF8) else "cp1252", "replace")


def _has_no_names(rows: Sequence[list[str]]) -> bool:
    """Whether the first row holds values: only numbers, or numbers and texts placed as in the second."""
    first, second = rows[0], rows[min(1, len(rows) - 1)]
    numeric = [_is_number(cell) for cell in first]
    if all(map(_is_number, filter(None, first))):
        return True
    fraction = any(_WITH_POINT.fullmatch(cell) for cell in first)
    return fraction and len(rows) > 1 and numeric == [_is_number(cell) for cell in second]


def _monitor(comment: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = parse_json(comment.splitlines()[0].removeprefix("#").encode()) if comment else None
        return found if isinstance(found, dict) else {}
    return {}


def _names(header: Sequence[str]) -> list[str]:
    """Unique names of a header: an empty name becomes `c<place>`, a repeated one gets a number."""
    names: dict[str, None] = {}  # in their order
    again: Counter[str] = Counter()
    for place, name in enumerate(header):
        free = wanted = name or f"c{place}"
        while free in names:
            again[wanted] += 1
            free = f"{wanted}.{again[wanted]}"
        names[free] = None
    return list(names)


def _fitting(header: list[str], rows: Sequence[list[str]]) -> tuple[list[list[str]], int]:
    """Rows that fit a header, and the number of others."""
    width = len(header)
    numeric = [place for place, cell in enumerate(rows[0] if rows else ()) if _is_number(cell)]
    kept: list[list[str]] = []
    left_out = 0
    foreign: set[int] = set()  # widths of other headers since the last copy of ours
    for row in rows:
        if row == header:  # repeated by a restarted program
            foreign.clear()
        elif _is_header(row, numeric):
            foreign.add(len(row))
            left_out += 1
        elif len(row) in foreign or any(row[width:]):
            left_out += 1
        else:
            kept.append([*row, *[""] * (width - len(row))][:width])
    return kept, left_out


def _is_header(row: Sequence[str], numeric: Sequence[int]) -> bool:
    """Whether a row has names where the first row has numbers."""
    there = [row[place] for place in numeric if place < len(row)]
    return bool(there) and all(
        _NAME.fullmatch(cell) and cell.lower() not in _NO_NAMES for cell in (*there, *row)
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return _WITH_COMMA.fullmatch(cell) is not None
    return True


def _separator(text: str) -> str:
    """Separator of cells: the first of comma, semicolon, tab that splits both first lines equally."""
    first = "\n".join(match[0] for match in islice(_LINE.finditer(text), 2))
    for mark in ",;\t":
        counts = {len(row) for row in split_rows(first, mark)}
        if len(counts) == 1 and 1 not in counts:
            return mark
    return ","


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell


def with_steps(table: ForeignTable) -> tuple[list[str], list[list[str]], str]:
    """Columns and rows with a column `time-step`, and a remark about its source."""
    columns, rows = table.columns, table.rows
    if TIME_STEP in columns:
        return columns, rows, f"the time-step is the column {TIME_STEP!r}"
    if (lengths := _episode_lengths(table)) is not None:
        stepped = [[*row, str(step)] for row, step in zip(rows, accumulate(lengths), strict=True)]
        return [*columns, TIME_STEP], stepped, _BY_LENGTHS
    place = _step_place(columns, rows)
    steps = list(map(str, range(len(rows)))) if place is None else _filled([row[place] for row in rows])
    remark = _BY_NUMBER if place is None else f"the time-step is the column {_shown(columns[place])}"
    stepped = [[*row, step] for row, step in zip(rows, steps, strict=True)]
    return [*columns, TIME_STEP], stepped, remark


def _shown(name: str) -> str:
    """A name for a remark: quoted, escaped and shortened."""
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…")


def _episode_lengths(table: ForeignTable) -> list[int] | None:
    """Lengths of episodes from the rows of SB3's monitor; None for another table."""
    if _MONITOR_START not in table.about or not {*_MONITOR_COLUMNS} <= set(table.columns):
        return None
    place = table.columns.index(_MONITOR_LENGTH)
    try:
        return [int(row[place] or 0) for row in table.rows]
    except ValueError:
        return None


def _step_place(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int | None:
    """Place of the column that counts steps: it has such a name, and numbers alone except for empty cells.

    None without one. A column with falling values, such as lengths of episodes, is taken only if there is no
    other.
    """
    plain = ["".join(filter(str.isalnum, name)).lower() for name in columns]
    last = ["".join(filter(str.isalnum, name.rpartition("/")[2])).lower() for name in columns]
    falling = None
    for names in (plain, last):
        for wanted in STEP_NAMES:
            for place in (place for place, name in enumerate(names) if name == wanted):
                cells = [row[place] for row in rows if row[place] and row[place].lower() not in _NO_NAMES]
                if all(map(_is_number, cells)) and (cells or not rows):
                    values = [float(_with_point(cell)) for cell in cells]
                    if all(one <= other for one, other in pairwise(values)):
                        return place
                    falling = place if falling is None else falling
    return falling


def _filled(cells: Sequence[str]) -> list[str]:
    """Cells of a column, with gaps filled from the cell before, or at the beginning from the first number."""
    there = [cell if cell.lower() not in _NO_NAMES else "" for cell in cells]
    current = next(filter(None, there), "")
    return [current := cell or current for cell in there]
