"""Choice of the local files that go.

Pure. Only kinds that nothing here reads by itself: `checkpoint`, and if asked for `results` and `tmp_data`.
Rows, parameters, code and archives always stay: the database's queries, plots and resume need them, and
they are small. Of `checkpoint` only files that `load_checkpoint` can ask for, `<name>_<time-step>.pt`, and
whole sharded checkpoints: all of one, or nothing. A run that lives is left alone, and of each ended run the
newest checkpoints of each name stay. Oldest first, checkpoints before other kinds, `MAX_AT_ONCE` in one pass.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger_rows import Key
from rla_client.contract.checkpoint.checkpoint_age import oldest_first, save_time
from rla_client.contract.layout import CHECKPOINT, PRUNABLE

MAX_AT_ONCE: Final = 50_000  # files of one pass, 50 MB in memory; the next pass takes the next ones
MIN_FILE_BYTES: Final = 4096  # a smaller one frees no more than its note takes
_CHECKPOINT: Final = re.compile(r"(.+)[_-](-?[0-9]{1,19})\.pt", re.DOTALL)
_NUMBERED: Final = re.compile(r"(.+)[_-](-?[0-9]{1,19})\.(?:pt|dcp)", re.DOTALL)
NOT_WHOLE: Final = "of a sharded checkpoint that is not whole"
OTHER_NAME: Final = "not named NAME_STEP.pt"


@dataclass(frozen=True, slots=True)
class PruneRules:
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
class PruneCandidate:
    """A file that is on the master as it lies here. `path`, `item`: below the data root.

    `others`: of the `whole.json` of a sharded checkpoint: what goes after it.
    """

    key: Key
    path: bytes
    kind: str
    item: bytes
    record: SentRecord
    others: tuple[PruneCandidate, ...] = ()

    @property
    def local(self) -> Local:
        """The file here."""
        return self.record.local

    @property
    def size(self) -> int:
        """Bytes that its going frees."""
        return self.local.size + sum(one.local.size for one in self.others)


def unfit(kind: str, name: str, size: int) -> str:
    """Why a file cannot be taken away and fetched back, whatever the rules; empty where it can."""
    if kind not in PRUNABLE:
        return "of a kind that always stays"
    if kind == CHECKPOINT and _CHECKPOINT.fullmatch(name) is None:
        return OTHER_NAME
    return f"smaller than {MIN_FILE_BYTES >> 10} KiB" if size < MIN_FILE_BYTES else ""


def newest(folder: Path, names: Iterable[str], count: int) -> set[str]:
    """Of a checkpoint folder's entries the `count` of each name that were saved last."""
    series: dict[str, list[tuple[str, int]]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            series.setdefault(match[1], []).append((name, int(match[2])))
    stay: set[str] = set()
    for found in series.values():
        if len(found) <= max(1, count):
            stay.update(name for name, _ in found)
            continue
        by_age = oldest_first(save_time(folder, name, step) for name, step in found)
        stay.update(one.name for one in by_age[-max(1, count) :])
    return stay


def first_to_go(candidates: Iterable[PruneCandidate], rules: PruneRules) -> list[PruneCandidate]:
    """The `MAX_AT_ONCE` of them that go before all others, in that order; of a million no more are held."""
    order = {kind: place for place, kind in enumerate(rules.kinds)}
    return heapq.nsmallest(
        MAX_AT_ONCE, candidates, key=lambda one: (order[one.kind], one.local.mtime_ns, one.path)
    )


def choose(
    candidates: Iterable[PruneCandidate], rules: PruneRules, *, now: float, used_bytes: int, free_bytes: int
) -> list[PruneCandidate]:
    """The files that go, in the order in which they go.

    `used_bytes`: what files of these kinds take here, also those that may not go; `now`: Unix seconds.
    """
    chosen = []
    for one in first_to_go(candidates, rules):
        old = rules.older_than_s > 0 and now - one.local.mtime_ns / 1e9 > rules.older_than_s
        much = 0 < rules.max_bytes < used_bytes
        full = free_bytes < rules.free_bytes
        if old or much or full:
            chosen.append(one)
            used_bytes -= one.size
            free_bytes += one.size
    return chosen


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What would go, what the files of these kinds take here now, and reason → how many stay for it."""

    chosen: tuple[PruneCandidate, ...]
    used_bytes: int
    free_bytes: int
    kept: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """What it frees."""
        return sum(one.size for one in self.chosen)
