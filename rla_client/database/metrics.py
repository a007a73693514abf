"""The metrics of runs: which one people most likely want to see, and what is known of each.

The *likely metric* of a run is the first column of progress.csv, other than times, that holds numbers
and whose name has one of `LIKELY_WORDS`, the earlier word before the later; without such a name the
first column with numbers. Names of a spread (`return_std`, `max_return`) come after the others. Of
several runs it is the one that most of them have; where that is a tie, the newest run's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

CLOCKS = frozenset({"time-step", "timestamp"})  # columns of each row that say when, not what
_TIMES = ("time", "_runtime")  # begin the names of further such columns; the latter is wandb's
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
        if name in CLOCKS or name.startswith(_TIMES):
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


def mean_and_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean of some runs, and half of its 95 % interval (Student's t); None of it for a single run."""
    count = len(values)
    if not count:
        return None, None
    mean = sum(values) / count
    if count == 1:
        return mean, None
    spread = math.hypot(*(value - mean for value in values)) / math.sqrt((count - 1) * count)  # no overflow
    t = _T[count - 2] if count - 1 <= len(_T) else 1.96 + 2.42 / (count - 1)
    return mean, t * spread
