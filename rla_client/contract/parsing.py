"""Text files that anybody may have written: JSON and YAML within bounds, CSV as it was meant.

A file of a few bytes can stand for billions of values (aliases of aliases, merges of merges), for a
number that takes minutes to print, or for lists so deep that whoever walks them runs out of stack. The
bounds are on what a text says once it is written out, so anchors and aliases may be used as always.

Lines of CSV end with a newline alone. Python's writer then quotes cells with a newline, but not those
with a lone carriage return, which pandas and the csv module take for the end of a row. It quotes
both where lines end with both: so it is told that they do, and the ends are fixed on their way
to the file. Then every reader takes rows apart as they were put together.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_WHOLE = 1 << 64  # inodes and device numbers have 64 bits
INT64 = 1 << 63  # one more than the largest of 64 bits with a sign
MAX_TIME_S = 1 << 37  # the year 6325: every date library takes it
MAX_VALUES = 100_000  # of one text, each alias as often as it is used; YAML: with the keys
MAX_CHARS = 4 << 20  # of all keys and values, the same
MAX_DEPTH = 100  # lists and mappings inside one another
MAX_DIGITS = 1000  # of a whole number; a 128-bit seed has 39
MAX_DIRECTIVES = 10  # libyaml compares each with all others
TOO_LONG = "larger than field limit"  # what the csv module says of a cell
LINE_END = "\r\n"  # of the writer; `NewlineEnds` takes it off again


def parse_json(data: bytes, max_values: int = MAX_VALUES) -> Any:  # noqa: ANN401
    """The value of a JSON text.

    Raises:
        ValueError: it is not JSON, or beyond the bounds.
    """
    if data.count(b"[") + data.count(b"{") > max_values:  # each costs 100 bytes once it is parsed
        raise ValueError(f"more than {max_values} lists and mappings")
    try:
        found = json.loads(data, parse_int=_whole_number)
    except RecursionError:
        raise ValueError(f"more than {MAX_DEPTH} lists and mappings inside one another") from None
    _check_size(found, max_values)
    return found


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _check_size(value: object, max_values: int) -> None:
    level: list[Any] = [value]
    count = depth = 0
    while level:
        count += len(level)
        depth += 1
        if count > max_values:
            raise ValueError(f"more than {max_values} values")
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} lists and mappings inside one another")
        inner = [one for one in level if isinstance(one, dict | list)]
        level = [below for one in inner for below in (one.values() if isinstance(one, dict) else one)]


def check_yaml(text: str | bytes, loader: Any = None) -> None:  # noqa: ANN401 - a class of pyyaml's
    """Be sure that a YAML text stands for a bounded value, before anything is built of it.

    Args:
        text: what is to be loaded.
        loader: which loader's messages and line numbers errors have; None: the fastest.

    Raises:
        ValueError: it is beyond the bounds.
        yaml.YAMLError: it is not YAML.
    """
    import yaml  # noqa: PLC0415 - 10 ms that `import rla_client` must not cost

    directives = re.findall(rb"^%" if isinstance(text, bytes) else "^%", text, re.MULTILINE)  # type: ignore[arg-type]
    if len(directives) > MAX_DIRECTIVES:
        raise ValueError(f"more than {MAX_DIRECTIVES} directives")
    tally = _Tally()
    for event in yaml.parse(text, loader or getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        tally.add(event)


class _Tally:
    """Values and characters that a series of YAML events stands for."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}  # by anchor
        self._open: list[tuple[str | None, int, int]] = []  # anchor, and what was counted before it
        self._values = self._chars = 0

    def add(self, event: Any) -> None:  # noqa: ANN401 - yaml.Event
        """Count one event.

        Raises:
            ValueError: it leads beyond the bounds.
        """
        kind = type(event).__name__
        anchor = getattr(event, "anchor", None)
        if kind == "AliasEvent":
            # an anchor that is still open holds itself: without end; an unknown one the loader refuses
            endless = any(name == anchor for name, _, _ in self._open)
            values, chars = (MAX_VALUES, 0) if endless else self._sizes.get(str(anchor), (0, 0))
            self._count(values + 1, chars)
        elif kind == "ScalarEvent":
            self._count(1, len(event.value))
            if anchor is not None:
                self._sizes[anchor] = (1, len(event.value))
        elif kind in {"SequenceStartEvent", "MappingStartEvent"}:
            self._open.append((anchor, self._values, self._chars))
            self._count(1, 0)
        elif kind in {"SequenceEndEvent", "MappingEndEvent"}:
            name, values, chars = self._open.pop()
            if name is not None:
                self._sizes[name] = (self._values - values, self._chars - chars)

    def _count(self, values: int, chars: int) -> None:
        self._values += values
        self._chars += chars
        if self._values > MAX_VALUES or self._chars > MAX_CHARS:
            raise ValueError(f"written out, it has more than {MAX_VALUES} values or {MAX_CHARS} characters")
        if len(self._open) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} lists and mappings inside one another")


def whole(raw: Any, limit: int = MAX_WHOLE) -> int:  # noqa: ANN401 - foreign data
    """A whole number from 0 to below `limit`.

    Raises:
        TypeError: it is not a number.
        ValueError: it is another one.
        OverflowError: it is infinite.
    """
    found = int(raw)
    if 0 <= found < limit:
        return found
    raise ValueError(f"{found!r:.40} is not from 0 to {limit - 1}")


def number(raw: Any) -> float:  # noqa: ANN401 - foreign data
    """A number, infinite ones too.

    Raises:
        TypeError: it is none.
        ValueError: it is none, or NaN.
        OverflowError: it is a whole number beyond all floats.
    """
    found = float(raw)
    if not math.isnan(found):
        return found
    raise ValueError(f"{raw!r:.40} is not a number")


def moment(raw: object) -> float:
    """Unix seconds, from 0 to below MAX_TIME_S.

    Raises:
        TypeError, ValueError, OverflowError: as for `number`; ValueError for moments beyond, too.
    """
    found = number(raw)
    if 0 <= found < MAX_TIME_S:
        return found
    raise ValueError(f"{found!r} is not a moment in Unix seconds")


# -- CSV ------------------------------------------------------------------------------------------


class TextSink(Protocol):
    """What rows are written to; opened with `newline=""`, so that it leaves line ends alone."""

    def write(self, text: str, /) -> object:
        """Take some text."""


class NewlineEnds(io.TextIOBase):
    r"""Takes lines that end with `\r\n`, one at each call, and passes them on with `\n`.

    Args:
        sink: gets the lines.
    """

    def __init__(self, sink: TextSink) -> None:
        self._sink = sink

    def writable(self) -> bool:
        """For pandas."""
        return True

    def write(self, text: str, /) -> int:
        """Pass a line on."""
        self._sink.write(text.removesuffix(LINE_END) + "\n")
        return len(text)


def write_rows(sink: TextSink, rows: Iterable[Sequence[object]]) -> None:
    """Write rows to a text file that was opened with `newline=""`; NUL is escaped, as the agent does.

    Raises:
        OSError: what the file's `write` raises.
    """
    csv.writer(NewlineEnds(sink), lineterminator=LINE_END).writerows(
        [cell.replace("\0", "\\x00") if isinstance(cell, str) else cell for cell in row] for row in rows
    )


def rows_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as text, the last one ended too."""
    text = io.StringIO(newline="")
    write_rows(text, rows)
    return text.getvalue()


def split_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    r"""Rows of a table as text; a quoted line end stays in its cell, and a cell may be of any length.

    Only `\n`, `\r\n` and, where nothing is quoted, a lone `\r` end a row, not the further
    characters that `str.splitlines` cuts at: those stand in cells that no writer quotes.

    Raises:
        csv.Error: it is not CSV.
    """
    text = text.replace("\0", "")  # what a power cut leaves; Python 3.10's reader refuses it
    if "\r" in text and '"' not in text:  # the original quotes nothing
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    try:
        ended = (f"{line}\n" for line in lines) if '"' in text else lines
        return list(csv.reader(ended, delimiter=delimiter))
    except csv.Error as error:
        if TOO_LONG not in str(error):
            raise
    return [cells_of(record, delimiter) for record in _records(lines)]


def cells_of(record: str, delimiter: str = ",") -> list[str]:
    """Cells of one record; the csv module refuses long ones, by a limit of the whole process."""
    text = record.removesuffix("\n").removesuffix("\r")
    if not text:
        return []
    cells: list[list[str]] = [[]]
    parts = text.split('"')
    for number, part in enumerate(parts):
        if number % 2 or delimiter not in part:  # inside quotes, or nothing ends here
            doubled = not part and number % 2 == 0 and 0 < number < len(parts) - 1
            cells[-1].append('"' if doubled else part)
        else:
            first, *others = part.split(delimiter)
            cells[-1].append(first)
            cells += [[other] for other in others]
    return ["".join(cell) for cell in cells]


def stream_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """`split_rows` of lines with their ends, one record at a time.

    Raises:
        csv.Error: it is not CSV.
    """
    for record in _records(lines, joint=""):
        yield from split_rows(record)


def _records(lines: Iterable[str], joint: str = "\n") -> Iterator[str]:
    """Lines put together where a quoted cell holds their ends."""
    record: list[str] = []
    quotes = 0
    for line in lines:
        record.append(line)
        quotes += line.count('"')
        if quotes % 2 == 0:
            yield joint.join(record)
            record.clear()
    if record:
        yield joint.join(record)
