"""What users read of `rla`, `rla-agent` and the library: tables, lines that fit, hints, errors.

The table of one row, as stdout and log.txt show it::

    ---------------------------------------------------------
    | loss      | 0.25     |
    | time-step | 2048     |
    ---------------------------------------------------------

Keys are sorted without regard to case; a float is `%-8.3g`, anything else `str`; a key or value
longer than 80 characters is cut to 40 and `...`. The right border is straight on a terminal:
wide (CJK) characters count as two columns, combining ones as none, and what cannot be printed
(a newline in a value) is shown escaped. The layout of the key column is kept per set of keys,
since a training loop logs the same ones each time.

A name of several parts (`charts/episodic_return`, `agent.lr`) may be given by its last parts alone
where no other known name ends in them; a whole name always means itself. A name that means nothing
becomes an error with the nearest names as its hint, and each command tells errors in the same way.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from rla_client.contract.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import typer

MAX_CELL_CHARS = 80
CUT_CELL_CHARS = 40
DASHES_BEYOND_CELLS = 40  # as in the original: its dashes continue to the right of the table
NUMBERS = frozenset((float, int, bool))  # their cells are ASCII and printable
MAX_CACHED_KEYS = 1024  # a row with more keys is laid out each time, so that the cache stays small
EXIT_USAGE = 2
CUTOFF = 0.6  # difflib's measure of likeness; below, words share letters but no meaning
MARGIN = 0.12  # of likeness below the nearest name's; what is farther is noise beside it
MOST_MEANT = 3
MOST_LISTED = 20
MOST_COMPARED = 5000  # names; comparing one takes 50 µs
_PARTS = re.compile(r"[/.]")
_MEANT = "Did you mean"  # of typer's messages


def format_table(row: Mapping[str, object]) -> str:
    """Lay one row out as a table.

    Args:
        row: key to plain value (see `values.to_plain`).

    Returns:
        Lines of text, the last one ended too; empty for an empty row.
    """
    if not row:
        return ""
    keys = tuple(row)
    if len(keys) <= MAX_CACHED_KEYS:
        kinds = tuple(map(type, row.values()))
        if NUMBERS.issuperset(kinds):
            pick, form = _numbers(keys, kinds)
            try:
                cells = (form % pick(row)).split("\n")
            except ValueError:  # an integer of more digits than Python writes
                cells = [" " * (MAX_CELL_CHARS + 1)]
            width = max(map(len, cells))
            if width <= MAX_CELL_CHARS:
                return _frame(keys, width) % tuple(cells)
    order, heads, key_width = _layout(keys) if len(keys) <= MAX_CACHED_KEYS else _lay_out(keys)
    cells = [_value_cell(row[key]) for key in order]
    if all(map(str.isascii, cells)):
        width = max(map(len, cells))
        lines = [f"{head}{cell:<{width}} |\n" for head, cell in zip(heads, cells, strict=True)]
    else:
        width = max(map(text_width, cells))
        lines = [f"{head}{pad(cell, width)} |\n" for head, cell in zip(heads, cells, strict=True)]
    dashes = "-" * (key_width + width + DASHES_BEYOND_CELLS) + "\n"
    return f"{dashes}{''.join(lines)}{dashes}"


def text_width(text: str) -> int:
    """Columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def broken(text: str, width: int) -> list[str]:
    """Text in lines of `width` columns at most: broken at blanks, else after a slash, else anywhere."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        pieces = re.findall(r"/*[^/]+/*|/+", word) if text_width(word) > width else [word]
        for number, piece in enumerate(pieces):
            gap = " " if line and not number else ""
            if line and text_width(line + gap + piece) > width:
                lines.append(line)
                line = gap = ""
            for char in gap + piece:
                if line and text_width(line) + _char_width(char) > width:
                    lines.append(line)
                    line = ""
                line += char
    return [*lines, line]


def indented(text: str, width: int, first: str = "", others: str = "") -> str:
    """Text as `broken` lines, behind `first` and, below, `others` (of the same or another length)."""
    room = max(width - max(text_width(first), text_width(others)), 2)
    return "\n".join((others if number else first) + line for number, line in enumerate(broken(text, room)))


def fitted(text: str, width: int) -> str:
    """Lines as they are, the ones that are longer than `width` broken behind their own indent."""
    lines = []
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        lines.append(line if text_width(line) <= width else indented(line, width, indent, indent))
    return "\n".join(lines)


def pad(text: str, width: int) -> str:
    """Fill `text` with blanks up to `width` columns."""
    return text + " " * (width - text_width(text))


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _lay_out(keys: tuple[str, ...]) -> tuple[list[str], list[str], int]:
    """Keys in the order shown, the text before each value, and the key column's width."""
    order = sorted(keys, key=lambda key: (key.lower(), key))
    shown = [_cell(key) for key in order]
    width = max(map(text_width, shown))
    return order, [f"| {pad(key, width)} | " for key in shown], width


_layout = lru_cache(maxsize=256)(_lay_out)


@lru_cache(maxsize=256)
def _numbers(keys: tuple[str, ...], kinds: tuple[type, ...]) -> tuple[Callable[[Any], Any], str]:
    """For a row of numbers: what picks its values in the order shown, and the format of their cells."""
    order = _layout(keys)[0]
    kind_of = dict(zip(keys, kinds, strict=True))
    return itemgetter(*order), "\n".join("%-8.3g" if kind_of[key] is float else "%s" for key in order)


@lru_cache(maxsize=128)
def _frame(keys: tuple[str, ...], width: int) -> str:
    """A whole table with a place for each cell."""
    _, heads, key_width = _layout(keys)
    lines = [head.replace("%", "%%") + f"%-{width}s |\n" for head in heads]
    dashes = "-" * (key_width + width + DASHES_BEYOND_CELLS) + "\n"
    return f"{dashes}{''.join(lines)}{dashes}"


def _value_cell(value: object) -> str:
    if type(value) is float:
        return f"{value:<8.3g}"
    if isinstance(value, float):
        return f"{float(value):<8.3g}"
    try:
        return _cell(str(value))
    except ValueError:  # integers, alone or in a list, of more digits than Python writes
        return f"<{type(value).__name__}: too long>"


def _cell(text: str) -> str:
    if len(text) > MAX_CELL_CHARS:
        text = text[:CUT_CELL_CHARS] + "..."
    return printable(text)


def printable(text: str) -> str:
    """Text for one line of a terminal or log: control characters, line ends, stray bytes are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def duration_text(seconds: float | None) -> str | None:
    """How long something took, as every command prints it: `3.2s`, `12m05s`, `3h12m`, `4d03h`; None stays."""
    if seconds is None:
        return None
    seconds = max(seconds, 0.0)  # clocks are set back
    if seconds < 59.95:  # noqa: PLR2004 - from there it would print as 60.0s
        return f"{seconds:.1f}s"
    minutes, rest = divmod(max(int(seconds), 60), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


# -- names that are near -------------------------------------------------------------------------------


def near(name: object, known: Iterable[str], count: int = MOST_MEANT) -> list[str]:
    """At most `count` known names that look like `name`, the nearest first; case does not count.

    Names of several parts are also compared by their last ones, and found by any word in them.
    """
    import difflib  # noqa: PLC0415 - for messages only

    wanted = str(name).casefold()
    matchers = {
        text: difflib.SequenceMatcher(b=text, autojunk=False) for text in (wanted, _PARTS.split(wanted)[-1])
    }
    found: list[tuple[float, str]] = []
    for word in list(dict.fromkeys(known))[:MOST_COMPARED]:
        whole = word.casefold()
        likeness = 0.0
        for text, matcher in product({whole, _PARTS.split(whole)[-1]}, matchers.values()):
            matcher.set_seq1(text)
            if matcher.real_quick_ratio() >= CUTOFF and matcher.quick_ratio() >= CUTOFF:
                likeness = max(likeness, matcher.ratio())
        if wanted in re.split(r"[\W_]+", whole):
            likeness = max(likeness, CUTOFF)
        if likeness >= CUTOFF:
            found.append((-likeness, word))
    found.sort(key=lambda pair: pair[0])
    return [word for likeness, word in found[:count] if likeness <= found[0][0] + MARGIN]


def hint(name: object, known: Iterable[str]) -> str:
    """`did you mean 'x' or 'y'?`, or else `there are: …`; empty where nothing is known."""
    words = list(dict.fromkeys(known))
    meant = near(name, words)
    if meant:
        return f"did you mean {' or '.join(map(repr, meant))}?"
    return f"there are: {listed(words)}" if words else ""


def listed(names: Iterable[str]) -> str:
    """Names separated by commas, `MOST_LISTED` at most, the rest counted."""
    words = list(names)
    more = len(words) - MOST_LISTED
    return ", ".join(words[:MOST_LISTED]) + (f", … and {more} more" if more > 0 else "")


def ends_in(name: str, known: Iterable[str]) -> list[str]:
    """The known names whose last parts are `name`."""
    tails = (f"/{name}", f".{name}")
    return [word for word in dict.fromkeys(known) if word.endswith(tails)] if name else []


def full_name(name: str, known: Iterable[str], problem: str) -> str:
    """The one known name that is meant.

    Args:
        name: as given: whole, or its last parts.
        known: all names that there are.
        problem: says that there is no such name, for the error.

    Raises:
        UnknownNameError: none is meant, or several; the message has a line `hint: …`.
    """
    words = list(dict.fromkeys(known))
    if name in words:
        return name
    found = ends_in(name, words)
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownNameError(f"{name!r} fits {len(found)} names\nhint: give more of one: {listed(found)}")
    raise unknown(name, words, problem)


def unknown(name: object, known: Iterable[str], problem: str) -> UnknownNameError:
    """The error for a name that there is not, with the nearest names as its hint."""
    advice = hint(name, known)
    return UnknownNameError(f"{problem}\nhint: {advice}" if advice else problem)


# -- commands ------------------------------------------------------------------------------------------


def escape_unprintable(*streams: object) -> None:
    """Have text streams write what their encoding does not have as escapes: names come from anywhere."""
    for stream in streams:
        reconfigure = getattr(stream, "reconfigure", None)  # what tests or an embedder put there has none
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def examples(*lines: str) -> str:
    """The end of a command's help; each line is a paragraph, so that none is joined to another."""
    return "\n\n".join(["Examples:", *lines])


def columns(stream: TextIO) -> int:
    """Columns that lines may have: those of a terminal, any number in a pipe."""
    import shutil  # noqa: PLC0415 - not at import of the package

    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else sys.maxsize


def tell_error(message: object) -> None:
    """Print `error: …` on stderr, whole words a line; lines of the message, such as `hint: …`, stay lines."""
    print(fitted(f"error: {message}", columns(sys.stderr)), file=sys.stderr)  # noqa: T201


def run_app(app: typer.Typer, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and end with its exit code; wrong words are told as other errors are.

    Raises:
        SystemExit: always, or whatever else the command raises.
    """
    try:
        code = app(arguments, standalone_mode=False)
    except Exception as error:
        kind = type(error).__name__  # typer brings click's classes under names of its own
        if kind == "Abort":
            print("Aborted.", file=sys.stderr)  # noqa: T201
            sys.exit(1)
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if kind == "NoArgsIsHelpError":  # its help is printed already, or is the message
            print(message(), end="")  # noqa: T201
        else:
            path = getattr(getattr(error, "ctx", None), "command_path", "")
            tell_error(_with_hint(message(), getattr(error, "possibilities", None) or [], path))
        sys.exit(getattr(error, "exit_code", EXIT_USAGE))
    sys.exit(code if isinstance(code, int) else 0)


def _with_hint(message: str, options: Sequence[str], path: str) -> str:
    """What is wrong, without the names that look like it; these, or the help, as the hint."""
    problem, meant, names = message.partition(_MEANT)
    options = [one for place, one in enumerate(options) if one != "--help" or not place]  # it resembles many
    if options:
        problem = problem.partition(" (")[0]
        names = f" {' or '.join(one if one.startswith('-') else repr(one) for one in options)}?"
    if meant or options:
        return f"{problem.strip().rstrip('.')}\nhint: did you mean{names.replace(', ', ' or ')}"
    return f"{problem}\nhint: {path} --help" if path else problem
