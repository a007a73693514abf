"""Build plan of a table's parts.

New runs join the newest part of their table while it has room; parts that shrank are merged. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rla_client.database.lake.lake_reader import PartRuns
from rla_client.database.lake.manifest import MAX_RUNS
from rla_client.database.lake.run_tables import MAX_CSV_BYTES

SAMPLES_SHARE = 10  # ratio of a samples file to its index
FEW = MAX_RUNS // 8  # smaller parts are merged with their neighbour


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that belongs into the lake.

    Attributes:
        index: index of the run.
        signature: signature of its log folder.
        table_bytes: bytes of its progress.csv, plus an estimate for the index of its samples.
        samples: signature of its samples; empty if the lake keeps none.
    """

    index: str
    signature: str
    table_bytes: int
    samples: str = ""


@dataclass(slots=True)
class PlannedPart:
    """A part to write.

    Attributes:
        old: parts that it replaces, each with the places of the runs to keep.
        fresh: runs to read.
        runs: number of its runs.
        table_bytes: total of their `EndedRun.table_bytes`.
    """

    old: list[tuple[PartRuns, list[int]]] = field(default_factory=list)
    fresh: list[EndedRun] = field(default_factory=list)
    runs: int = 0
    table_bytes: int = 0

    def takes(self, one: EndedRun) -> bool:
        """Whether there is room for a run."""
        return self.runs == 0 or (
            self.runs < MAX_RUNS and self.table_bytes + one.table_bytes <= MAX_CSV_BYTES
        )

    def add(self, one: EndedRun, *, fresh: bool = True) -> None:
        """Add a run."""
        self.runs += 1
        self.table_bytes += one.table_bytes
        if fresh:
            self.fresh.append(one)

    @property
    def dirty(self) -> bool:
        """Whether it must be written."""
        return bool(self.fresh) or len(self.old) != 1 or len(self.old[0][1]) != len(self.old[0][0].indexes)


def plan(ended: Sequence[EndedRun], parts: Sequence[PartRuns]) -> list[PlannedPart]:
    """The parts that one table should have; those that are not `dirty` exist already. Pure.

    Args:
        ended: runs of the table, in the order of their indexes.
        parts: existing parts of the table, in the order of their first index.
    """
    now = {one.index: one for one in ended}
    jobs: list[PlannedPart] = []
    placed: set[str] = set()
    for part in parts:
        job = PlannedPart()
        keep = []
        known = zip(part.indexes, part.signatures, part.samples_signatures, strict=True)
        for place, (index, signature, samples) in enumerate(known):
            one = now.get(index)
            if one is None or index in placed:
                continue
            same = one.signature == signature and one.samples == samples
            if same or job.takes(one):
                placed.add(index)
                job.add(one, fresh=not same)
                keep += [place] if same else []
        job.old.append((part, keep))
        _append(jobs, job)
    for one in ended:
        if one.index not in placed:
            if not jobs or not jobs[-1].takes(one):
                jobs.append(PlannedPart())
            jobs[-1].add(one)
    return jobs


def _append(jobs: list[PlannedPart], job: PlannedPart) -> None:
    """Add a part, or merge it into the one before if both are small."""
    before = jobs[-1] if jobs else None
    if (
        before
        and before.runs + job.runs <= FEW
        and before.table_bytes + job.table_bytes <= MAX_CSV_BYTES // 2
    ):
        before.old += job.old
        before.fresh += job.fresh
        before.runs += job.runs
        before.table_bytes += job.table_bytes
    else:
        jobs.append(job)
