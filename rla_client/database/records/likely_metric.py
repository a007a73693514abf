"""Likely metric of a run, its default for display.

It is the first column of progress.csv, other than times, that holds numbers and whose name has one of
`LIKELY_WORDS`, the earlier word before the later; without such a name the first column with numbers. Names of
a spread (`return_std`, `max_return`), and without such a word of a count (`epoch`), come after the others. Of
several runs it is the one that most of them have; where that is a tie, the newest run's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rla_client.database.records.record import Record

CLOCKS = frozenset({"time-step", "timestamp"})  # columns of each row that say when, not what
_TIMES = ("time", "_runtime", "profiling/")  # begin further such columns; of wandb, and of TRL
LIKELY_WORDS = ("return", "reward", "rew", "score", "success", "win", "accuracy", "loss")
_SHORT_WORD = 3  # letters; such a word counts only alone: `window` is no win
_SPREAD = frozenset({"std", "stddev", "var", "min", "max", "len", "length"})
_COUNTS = frozenset(
    {"epoch", "epochs", "step", "steps", "timesteps", "iteration", "iterations", "iter", "iters", "episodes"}
)  # end names of what only grows
_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def likely_of(records: Sequence[Record]) -> str | None:
    """The likely metric of several runs, oldest first; None where none has rows with numbers."""
    counts = Counter(record.likely for record in reversed(records) if record.likely)
    return counts.most_common(1)[0][0] if counts else None  # of equals the first counted, the newest


def likely_metric(names: Iterable[str]) -> str | None:
    """The one of some columns with numbers that people most likely want to see; see the module's text."""
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
    """The columns whose last value is a number."""
    return [
        name
        for name, value in last_values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
