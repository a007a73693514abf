"""Which files may leave this machine, and in which order. Pure.

Only kinds that nothing here reads by itself: `checkpoint`, and if asked for `results` and `tmp_data`.
Rows, parameters, code and archives always stay: the database's queries, plots and resume need them, and
they are small. Of `checkpoint` only files that `load_checkpoint` can ask for, `<name>_<time-step>.pt`;
what users put there under other names stays.

A run that lives is left alone, and of each ended run the newest checkpoints of each name stay.
Oldest first, checkpoints before other kinds, `MAX_AT_ONCE` in one pass.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rla_agent.replicate.ledger import Key
from rla_agent.replicate.worker.plan import Local, Record
from rla_client.contract.checkpoints import PRUNABLE
from rla_client.contract.layout import CHECKPOINT

MAX_AT_ONCE: Final = 50_000  # files of one pass, 50 MB in memory; the next pass takes the next ones
MIN_FILE_BYTES: Final = 4096  # a smaller one frees no more than its note takes
_CHECKPOINT: Final = re.compile(r"(.+)[_-](-?[0-9]{1,19})\.pt", re.DOTALL)


# why a file stays, as the command says it
LIVE: Final = "of a run that has not ended"
OTHER_KIND: Final = "of a kind that always stays"
OTHER_NAME: Final = "not named NAME_STEP.pt"
SMALL: Final = f"smaller than {MIN_FILE_BYTES >> 10} KiB"
NEWEST: Final = "newest of its run and name"
UNSENT: Final = "not wholly on the master yet"
FRESH: Final = "sent less than two minutes ago"
CHANGED: Final = "changed since it was sent"
SPARED: Final = "within the limits given"


@dataclass(frozen=True, slots=True)
class Rules:
    """When a file goes. At least one of the three limits must be given; a file goes by any of them.

    Attributes:
        kinds: which kinds, those that go first first.
        older_than_s: files not written for so many seconds; 0: no such limit.
        max_bytes: as many oldest ones as it takes until files of these kinds take no more than this;
            0: no such limit.
        free_bytes: as many oldest ones as it takes until the disk has so much free; 0: no such limit.
        keep_newest: checkpoints of each name of each run that always stay, at least 1.
    """

    kinds: tuple[str, ...] = (CHECKPOINT,)
    older_than_s: float = 0.0
    max_bytes: int = 0
    free_bytes: int = 0
    keep_newest: int = 1

    @property
    def empty(self) -> bool:
        """Whether no limit is given."""
        return not (self.older_than_s or self.max_bytes or self.free_bytes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that is on the master as it lies here. `path`, `item`: below the data root."""

    key: Key
    path: bytes
    kind: str
    item: bytes
    record: Record

    @property
    def local(self) -> Local:
        """The file here."""
        return self.record.local


def unfit(kind: str, name: str, size: int) -> str:
    """Why a file cannot be taken away and fetched back, whatever the rules; empty where it can."""
    if kind not in PRUNABLE:
        return OTHER_KIND
    if kind == CHECKPOINT and _CHECKPOINT.fullmatch(name) is None:
        return OTHER_NAME
    return SMALL if size < MIN_FILE_BYTES else ""


def newest(names: Iterable[str], count: int) -> set[str]:
    """Of a checkpoint folder's files the `count` with the highest time-steps of each name."""
    series: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is not None:
            series.setdefault(match[1], []).append((int(match[2]), name))
    return {name for found in series.values() for _, name in sorted(found)[-max(1, count) :]}


def first_to_go(candidates: Iterable[Candidate], rules: Rules) -> list[Candidate]:
    """The `MAX_AT_ONCE` of them that go before all others, in that order; of a million no more are held."""
    order = {kind: place for place, kind in enumerate(rules.kinds)}
    return heapq.nsmallest(
        MAX_AT_ONCE, candidates, key=lambda one: (order[one.kind], one.local.mtime_ns, one.path)
    )


def choose(
    candidates: Iterable[Candidate], rules: Rules, *, now: float, used_bytes: int, free_bytes: int
) -> list[Candidate]:
    """The files that go, in the order in which they go.

    Args:
        candidates: those that may.
        rules: the limits.
        now: Unix seconds.
        used_bytes: what files of these kinds take here, also those that may not go.
        free_bytes: what the disk has free.
    """
    chosen = []
    for one in first_to_go(candidates, rules):
        old = rules.older_than_s > 0 and now - one.local.mtime_ns / 1e9 > rules.older_than_s
        much = 0 < rules.max_bytes < used_bytes
        full = free_bytes < rules.free_bytes
        if old or much or full:
            chosen.append(one)
            used_bytes -= one.local.size
            free_bytes += one.local.size
    return chosen
