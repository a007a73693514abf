"""The metrics of runs: which one people most likely want to see, and what is known of each.

The *likely metric* of a run is the first column of progress.csv, other than times, that holds numbers
and whose name has one of `LIKELY_WORDS`, the earlier word before the later; without such a name the
first column with numbers. Names of a spread (`return_std`, `max_return`) come after the others. Of
several runs it is the one that most of them have; where that is a tie, the newest run's.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rla_client.database.records import Record
    from rla_client.database.runs import Database

CLOCKS = frozenset({"time-step", "timestamp"})  # columns of each row that say when, not what
LIKELY_WORDS = ("return", "reward", "rew", "score", "success", "win", "accuracy", "loss")
_SHORT_WORD = 3  # letters; such a word counts only alone: `window` is no win
_SPREAD = frozenset({"std", "stddev", "var", "min", "max", "len", "length"})
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
# Student's t, 97.5 %, by degrees of freedom from 1
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def likely_metric(names: Iterable[str]) -> str | None:
    """The one of some columns with numbers that people most likely want to see; see the module's text."""
    best: tuple[tuple[int, bool], str] | None = None
    for name in names:
        if name in CLOCKS or name.startswith("time"):
            continue
        pieces = [piece.lower() for piece in _PIECES.findall(name)]
        rank = (_word_place(pieces), not _SPREAD.isdisjoint(pieces))
        if best is None or rank < best[0]:
            best = rank, name
    return best[1] if best else None


def _word_place(pieces: Sequence[str]) -> int:
    for place, word in enumerate(LIKELY_WORDS):
        if word in pieces or (len(word) > _SHORT_WORD and any(word in piece for piece in pieces)):
            return place
    return len(LIKELY_WORDS)


def numeric(last_values: Mapping[str, object]) -> list[str]:
    """The columns whose last value is a number."""
    return [
        name
        for name, value in last_values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def likely_of(records: Sequence[Record]) -> str | None:
    """The likely metric of several runs, oldest first; None where none has rows with numbers."""
    counts = Counter(record.likely for record in reversed(records) if record.likely)
    return counts.most_common(1)[0][0] if counts else None  # of equals the first counted, the newest


def mean_and_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean of some runs, and half of its 95 % interval (Student's t); None of it for a single run."""
    count = len(values)
    if not count:
        return None, None
    mean = sum(values) / count
    if count == 1:
        return mean, None
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
    t = _T[count - 2] if count - 1 <= len(_T) else 1.96 + 2.42 / (count - 1)
    return mean, t * spread


@dataclass(slots=True)
class Group:
    """Runs that have the same values of some parameters.

    Attributes:
        values: of these parameters.
        states: state → how many runs are in it.
        numbers: last value of the metric of each run that has it.
    """

    values: tuple[object, ...]
    states: Counter[str] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)


def group_runs(records: Iterable[Record], by: Sequence[str], metric: str | None, now: float) -> list[Group]:
    """Runs by the values of fields, parameters or metrics, in the order of these; numbers first."""
    from rla_client.database.rows import RowView

    found: dict[tuple[tuple[int, float, str], ...], Group] = {}
    for record in records:
        row = RowView(record, now)
        values = tuple(row.get(name) for name in by)
        group = found.setdefault(tuple(map(_order, values)), Group(values))
        group.states[record.shown_state(now) or "not recorded"] += 1
        value = record.metrics.get(metric) if metric is not None else None
        if isinstance(value, int | float):
            group.numbers.append(float(value))
    return [found[key] for key in sorted(found)]


def _order(value: object) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), "")
    return (2, 0.0, "") if value is None else (1, 0.0, str(value))


@dataclass(slots=True)
class Summary:
    """One metric of some runs.

    Attributes:
        runs: that have it.
        rows: with a number.
        last: its last value in the newest run that has it.
        low: least finite number, None where there is none; `high` likewise.
        high: largest.
    """

    runs: int = 0
    rows: int = 0
    last: object = None
    low: float | None = None
    high: float | None = None


def summaries(database: Database, records: Sequence[Record]) -> dict[str, Summary]:
    """Each metric of some runs, given oldest first, in the order of the files' columns.

    A run whose table is broken is warned about and left out; one without rows has no metrics.
    """
    found: dict[str, Summary] = {}
    for record, columns in _tables(database, records):
        for name, numbers in columns.items():
            one = found.setdefault(name, Summary())
            one.runs += 1
            one.rows += len(numbers)
            one.last = record.metrics.get(name, numbers[-1] if numbers else one.last)
            finite = [value for value in numbers if math.isfinite(value)]
            one.low = min([*finite, *([] if one.low is None else [one.low])], default=None)
            one.high = max([*finite, *([] if one.high is None else [one.high])], default=None)
    return found


def _tables(database: Database, records: Sequence[Record]) -> Iterator[tuple[Record, dict[str, list[float]]]]:
    from rla_client.contract.errors import DatabaseError
    from rla_client.database.runs import Run, warn_broken

    for record in records:
        try:
            frame = Run(database, record).scalars()
        except FileNotFoundError:
            continue
        except (DatabaseError, OSError) as error:
            warn_broken(error)
            continue
        yield (
            record,
            {str(name): frame[name].dropna().tolist() for name in frame.columns if name not in CLOCKS},
        )
