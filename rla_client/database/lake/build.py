"""Update of the lake from the database.

Only parts that gained, lost or changed a run are written, and only new and changed runs are read from
files. Parts are written and published one after another, so a killed build loses the work on one part at
most.

The lake holds runs that have ended by their run.json, and other runs that were not written to for
`QUIET_S`. A run that changes while it is read is left to the next build.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.run_file import LIVE_STATES
from rla_client.database.catalogue import Catalogue, Signed
from rla_client.database.change_signatures import SamplesSignatures, Signatures, signed_size
from rla_client.database.lake.build_plan import SAMPLES_SHARE, EndedRun, PlannedPart, plan
from rla_client.database.lake.lake_reader import Lake, PartRuns
from rla_client.database.lake.lake_writer import Builder, building
from rla_client.database.lake.manifest import NAMES, LakePart, warn
from rla_client.database.lake.part_files import read_table
from rla_client.database.lake.part_writer import kept, write_parquet
from rla_client.database.lake.run_tables import (
    MAX_CSV_BYTES,
    LakeRun,
    make_tables,
    read_files,
    read_rows,
    read_system,
)
from rla_client.database.lake.sample_table import read_samples

if TYPE_CHECKING:
    import pyarrow as pa


Progress = Callable[[int, int], None]
QUIET_S = 3600.0  # a run without an ended state may still be written until then


@dataclass(slots=True)
class Report:
    """Result of a build.

    Attributes:
        read: runs read from files.
        removed: runs removed from the lake.
        left_out: runs left to the next build.
        parts: parts written.
        runs: runs in the lake.
        took_s: duration in seconds.
        problems: messages about runs that cannot be kept.
    """

    read: int = 0
    removed: int = 0
    left_out: int = 0
    parts: int = 0
    runs: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def build(data_root: Path, now: float, progress: Progress | None = None) -> Report | None:
    """Update the lake from the database; None if another process is building it.

    Args:
        data_root: of the database.
        now: Unix seconds.
        progress: called with (runs read, runs to read).

    Raises:
        DatabaseError: the lake cannot be written; its former content stays in effect.
    """
    begin = time.perf_counter()
    with building(data_root) as builder:
        if builder is None:
            return None
        report = Report()
        with Catalogue(data_root, seed=lambda wanted: Lake(data_root).rows(wanted)) as catalogue:
            signed = catalogue.refresh(int(now * 1e9))
            read = partial(_read_runs, data_root, catalogue, now, report)
            work = LakeBuild(data_root, ended_runs(data_root, signed, now), read, builder, now, report)
            try:
                while not work.carry_out(Lake(data_root), progress):
                    pass  # each turn drops one damaged part
                builder.sweep()
            except OSError as error:
                message = f"the lake was not brought up to date: {error.strerror or error}; what it had stays"
                raise DatabaseError(message) from error
        report.runs = sum(part.runs for part in builder.parts)
    report.took_s = time.perf_counter() - begin
    return report


def ended_runs(data_root: Path, signed: Sequence[Signed], now: float) -> dict[str, list[EndedRun]]:
    """Table → its runs that belong into the lake, in order; `signed` is the result of `Catalogue.refresh`."""
    found: dict[str, list[EndedRun]] = {}
    samples = SamplesSignatures(data_root, int(now * 1e9))
    for table, index, signature, state in signed:
        signed_bytes = signed_size(signature or "")
        if signed_bytes is None:
            continue  # no log folder, or not settled yet
        newest_ns, table_bytes = signed_bytes
        quiet_s = now - newest_ns / 1e9
        if (state is None or state in LIVE_STATES) and quiet_s < QUIET_S:
            continue
        if table_bytes <= MAX_CSV_BYTES:
            sampled, size = samples.of(table, index)
            one = EndedRun(index, signature, table_bytes + size // SAMPLES_SHARE, sampled)
            found.setdefault(table, []).append(one)
    return {table: sorted(runs, key=lambda one: one.index) for table, runs in sorted(found.items())}


def _read_runs(
    root: Path, catalogue: Catalogue, now: float, report: Report, table: str, wanted: Sequence[EndedRun]
) -> Iterator[LakeRun]:
    """Content of runs, without those that changed since the catalogue's refresh or cannot be kept."""
    for one in wanted:
        found = catalogue.row(table, one.index)
        if found is None or found[1] != one.signature:
            continue
        data = LakeRun(*found)
        data.samples_signature = one.samples
        try:
            fill(root, data)
        except (BrokenFileError, OSError, UnicodeEncodeError) as error:
            report.problems.append(f"{table}/{one.index}: {error}")
            continue
        data.files = read_files(root, table, one.index)
        with Signatures(root, int(now * 1e9)) as signatures:
            same = signatures.of(table, one.index, one.signature) == one.signature
        if same and SamplesSignatures(root, int(now * 1e9)).of(table, one.index)[0] == one.samples:
            yield data


def fill(root: Path, data: LakeRun) -> None:
    """Read the recorded data of a run.

    Raises:
        BrokenFileError, OSError: its files cannot be read.
        UnicodeEncodeError: its texts cannot be stored as UTF-8.
    """
    table = str(data.row[0])
    data.rows = read_rows(root, table, data.index)
    data.system = read_system(root, table, data.index)
    if data.samples_signature:
        data.samples = read_samples(root, table, data.index)
    "".join(text for text in data.row if isinstance(text, str)).encode()


class LakeBuild:
    """One build; `read` gives the content of those runs of a table that can be kept."""

    def __init__(
        self,
        data_root: Path,
        ended: dict[str, list[EndedRun]],
        read: Callable[[str, Sequence[EndedRun]], Iterable[LakeRun]],
        builder: Builder,
        now: float,
        report: Report,
    ) -> None:
        self._root = data_root
        self._ended = ended
        self._read = read
        self._builder = builder
        self._now = now
        self._report = report

    def carry_out(self, lake: Lake, progress: Progress | None) -> bool:
        """Write the planned parts; False if an old part turned out to be damaged, and was dropped."""
        ended = self._ended
        known = lake.signatures()
        self._report.removed += len(
            known.keys() - {(table, one.index) for table, runs in ended.items() for one in runs}
        )
        parts: dict[str, list[PartRuns]] = {}
        for one in sorted(lake.parts, key=lambda one: one.indexes[:1]):
            parts.setdefault(one.part.table, []).append(one)
        jobs = [
            (table, job)
            for table in sorted(ended.keys() | parts.keys())
            for job in plan(ended.get(table, []), parts.get(table, []))
            if job.dirty
        ]
        total = sum(len(job.fresh) for _, job in jobs)
        broken = {part.name for part, _ in lake.broken}
        if broken:
            self._builder.publish([part for part in self._builder.parts if part.name not in broken])
        done = 0
        for table, job in jobs:
            if progress is not None:
                progress(done, total)
            done += len(job.fresh)
            try:
                self._write(table, job)
            except BrokenFileError as error:  # of the lake; errors of runs become problems in the report
                gone = {one.part.name for one, _ in job.old}
                warn(f"a part of the lake cannot be read ({error}); its runs are read again")
                self._builder.publish([part for part in self._builder.parts if part.name not in gone])
                return False
        return True

    def _write(self, table: str, job: PlannedPart) -> None:
        fresh = list(self._read(table, job.fresh))
        self._report.read += len(fresh)
        self._report.left_out += len(job.fresh) - len(fresh)
        gone = {one.part.name for one, _ in job.old}
        parts = [part for part in self._builder.parts if part.name not in gone]
        if fresh or any(keep for _, keep in job.old):
            parts.append(self._part(table, job, fresh))
            self._report.parts += 1
        self._builder.publish(parts)

    def _part(self, table: str, job: PlannedPart, fresh: list[LakeRun]) -> LakePart:
        indexes = [data.index for data in fresh]
        indexes += [one.indexes[place] for one, places in job.old for place in places]
        name = self._builder.new_name(table, min(indexes).rpartition("/")[0])
        sizes, footers, runs = {}, {}, 0
        for file in NAMES:
            whole = self._joined(file, job, fresh)
            runs = whole.num_rows if file == "runs" else runs
            sizes[file], footers[file] = self._builder.write(name, file, partial(write_parquet, file, whole))
        return LakePart(
            name, table, min(indexes), max(indexes), runs, job.table_bytes, sizes, footers, self._now
        )

    def _joined(self, file: str, job: PlannedPart, fresh: list[LakeRun]) -> pa.Table:
        """One file of the new part: the kept runs of old parts, then the fresh runs, renumbered."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables, base = [], 0
        for one, keep in job.old:
            if keep:
                self._builder.fetch(one.part, file)
                tables.append(kept(read_table(self._root, one.part, file), keep, base))
                base += len(keep)
        new = make_tables(fresh, [file])[file]
        places = pc.add(new["place"], pa.scalar(base, pa.int32()))
        return pa.concat_tables([*tables, new.set_column(0, "place", places)])
