"""Choice of the local files to prune.

Pure. Only kinds that are read on request alone are pruned: `checkpoint`, and optionally `results` and
`tmp_data`. Rows, parameters, code and archives always stay: the database's queries, plots and resume need
them, and they are small. Of `checkpoint` only files that `load_checkpoint` can fetch,
`<name>_<time-step>.pt`, and complete sharded checkpoints are pruned: all of one, or nothing. Live runs are
never pruned, and of each ended run the newest checkpoints of each name stay. The oldest go first, checkpoints
before other kinds, `MAX_AT_ONCE` in one pass.
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
    """Rules of pruning. At least one of the three limits must be set; any of them selects files.

    Attributes:
        kinds: prunable kinds, in the order of pruning.
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
    """A file whose copy on the master is the same. `path`, `item`: below the data root.

    `others`: of the `whole.json` of a sharded checkpoint: the files that are pruned after it.
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
        """Bytes that pruning it frees."""
        return self.local.size + sum(one.local.size for one in self.others)


def unfit(kind: str, name: str, size: int) -> str:
    """Why a file can never be pruned and fetched back; empty where it can."""
    if kind not in PRUNABLE:
        return "of a kind that always stays"
    if kind == CHECKPOINT and _CHECKPOINT.fullmatch(name) is None:
        return OTHER_NAME
    return f"smaller than {MIN_FILE_BYTES >> 10} KiB" if size < MIN_FILE_BYTES else ""


def newest(folder: Path, names: Iterable[str], count: int) -> set[str]:
    """The last `count` saves of each name among a checkpoint folder's entries."""
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
    """The first `MAX_AT_ONCE` of them in pruning order, without storing all of a million."""
    order = {kind: place for place, kind in enumerate(rules.kinds)}
    return heapq.nsmallest(
        MAX_AT_ONCE, candidates, key=lambda one: (order[one.kind], one.local.mtime_ns, one.path)
    )


def choose(
    candidates: Iterable[PruneCandidate], rules: PruneRules, *, now: float, used_bytes: int, free_bytes: int
) -> list[PruneCandidate]:
    """The files to prune, in order.

    `used_bytes`: bytes of all files of these kinds here, prunable or not; `now`: Unix seconds.
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
    """The chosen files, the present bytes of these kinds here, and reason → number of files that stay."""

    chosen: tuple[PruneCandidate, ...]
    used_bytes: int
    free_bytes: int
    kept: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """Bytes that it frees."""
        return sum(one.size for one in self.chosen)
