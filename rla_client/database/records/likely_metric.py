"""Likely metric of a run, its default for display.

It is the first numeric column of progress.csv, except times, with one of `LIKELY_WORDS` in its name;
earlier words take precedence. Without such a name it is the first numeric column. Names of a spread
(`return_std`, `max_return`), and names of a count (`epoch`) without such a word, rank last. For several
runs it is the metric that most of them have, and in a tie the newest run's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rla_client.database.records.record import Record

CLOCKS = frozenset({"time-step", "timestamp"})  # columns of time
_TIMES = ("time", "_runtime", "profiling/")  # prefixes of further columns of time: of wandb and TRL
LIKELY_WORDS = ("return", "reward", "rew", "score", "success", "win", "accuracy", "loss")
_SHORT_WORD = 3  # letters; a word this short must stand alone: `window` is no win
_SPREAD = frozenset({"std", "stddev", "var", "min", "max", "len", "length"})
_COUNTS = frozenset(
    {"epoch", "epochs", "step", "steps", "timesteps", "iteration", "iterations", "iter", "iters", "episodes"}
)  # last words of names of counters
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def likely_of(records: Sequence[Record]) -> str | None:
    """Likely metric of runs, given oldest first; None if no run has rows with numbers."""
    counts = Counter(record.likely for record in reversed(records) if record.likely)
    return counts.most_common(1)[0][0] if counts else None  # in a tie the first counted, the newest


def likely_metric(names: Iterable[str]) -> str | None:
    """The likely metric among numeric columns; see the module docstring."""
    best: tuple[tuple[int, bool, bool], str] | None = None
    for name in names:
        if name in CLOCKS or name.startswith(_TIMES):
            continue
        pieces = [piece.lower() for piece in _PIECES.findall(name)]
        word = _word_place(pieces)
        counts = word == len(LIKELY_WORDS) and not _COUNTS.isdisjoint(pieces[-1:])
        rank = word, counts, not _SPREAD.isdisjoint(pieces)
        if best is None or rank < best[0]:
            best = rank, name
    return best[1] if best else None


def _word_place(pieces: Sequence[str]) -> int:
    for place, word in enumerate(LIKELY_WORDS):
        if word in pieces or (len(word) > _SHORT_WORD and any(word in piece for piece in pieces)):
            return place
    return len(LIKELY_WORDS)


def numeric(last_values: Mapping[str, object]) -> list[str]:
    """Names of the columns with a number as last value."""
    return [
        name
        for name, value in last_values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
