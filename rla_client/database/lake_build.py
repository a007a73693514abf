"""Bringing the lake up to the database, and checking that it says what the files say.

Only parts that got, lost or changed a run are written, and only new and changed runs are read from files.

`plan` decides without I/O; `build` carries it out one part after another and publishes after each, so one
that is killed loses one part's work at most. New runs join the newest part of their table while that has
room; parts of a table that shrank are put together. What a part costs is bounded (`tables`), so is memory.

In the lake are runs that ended, by their run.json, and others that nobody wrote to for `QUIET_S`. A run whose
files change while they are read is left to the next build.

`verify` reads every run again, `status` counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.run_file import LIVE_STATES
from rla_client.database.catalogue import COLUMNS, Catalogue, Signatures, Signed, catalogue_row
from rla_client.database.lake import (
    MAX_RUNS,
    NAMES,
    Builder,
    Lake,
    Part,
    PartRuns,
    building,
    read_table,
    warn,
)
from rla_client.database.lake_tables import (
    MAX_CSV_BYTES,
    RunData,
    make_tables,
    read_files,
    read_rows,
    read_system,
)

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_CELLS = 1 << 15  # of a row group: 160 runs of 200 rows

Progress = Callable[[int, int], None]
QUIET_S = 3600.0  # of a run whose state says nothing of its end: it may still be written until then
_COMPARED = ("runs", "params", "last", "rows", "system")  # `files` are as they were when the part was written
Reread = Callable[[int, Sequence[Any]], RunData | None]
FEW = MAX_RUNS // 8  # parts that shrank below are put together with their neighbour


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that belongs into the lake; `csv_bytes` of its progress.csv."""

    index: str
    signature: str
    csv_bytes: int


@dataclass(slots=True)
class Job:
    """A part to write.

    Attributes:
        old: parts that it takes the place of, each with the places of the runs that stay as they are.
        fresh: runs to read.
        runs: how many it will hold, with `csv_bytes` of progress.csv.
    """

    old: list[tuple[PartRuns, list[int]]] = field(default_factory=list)
    fresh: list[Ended] = field(default_factory=list)
    runs: int = 0
    csv_bytes: int = 0

    def takes(self, one: Ended) -> bool:
        """Whether there is room for a run."""
        return self.runs == 0 or (self.runs < MAX_RUNS and self.csv_bytes + one.csv_bytes <= MAX_CSV_BYTES)

    def add(self, one: Ended, *, fresh: bool = True) -> None:
        """Count a run in."""
        self.runs += 1
        self.csv_bytes += one.csv_bytes
        if fresh:
            self.fresh.append(one)

    @property
    def dirty(self) -> bool:
        """Whether anything is to be written."""
        return bool(self.fresh) or len(self.old) != 1 or len(self.old[0][1]) != len(self.old[0][0].indexes)


@dataclass(slots=True)
class Report:
    """What a build did: runs `read` from files, `removed`, `left_out` this time; parts written."""

    read: int = 0
    removed: int = 0
    left_out: int = 0
    parts: int = 0
    runs: int = 0
    took_s: float = 0.0
    problems: list[str] = field(default_factory=list)


def plan(ended: Sequence[Ended], parts: Sequence[PartRuns]) -> list[Job]:
    """The parts that one table should have; those that are not `dirty` are there already. Pure.

    Args:
        ended: runs of the table, in the order of their indexes.
        parts: of the table, in the order of their first index.
    """
    now = {one.index: one for one in ended}
    jobs: list[Job] = []
    placed: set[str] = set()
    for part in parts:
        job = Job()
        keep = []
        for place, (index, signature) in enumerate(zip(part.indexes, part.signatures, strict=True)):
            one = now.get(index)
            if one is None or index in placed:
                continue
            same = one.signature == signature
            if same or job.takes(one):
                placed.add(index)
                job.add(one, fresh=not same)
                keep += [place] if same else []
        job.old.append((part, keep))
        _append(jobs, job)
    for one in ended:
        if one.index not in placed:
            if not jobs or not jobs[-1].takes(one):
                jobs.append(Job())
            jobs[-1].add(one)
    return jobs


def _append(jobs: list[Job], job: Job) -> None:
    """Add a part, or put it together with the one before where both have become small."""
    before = jobs[-1] if jobs else None
    if before and before.runs + job.runs <= FEW and before.csv_bytes + job.csv_bytes <= MAX_CSV_BYTES // 2:
        before.old += job.old
        before.fresh += job.fresh
        before.runs += job.runs
        before.csv_bytes += job.csv_bytes
    else:
        jobs.append(job)


def build(data_root: Path, now: float, progress: Progress | None = None) -> Report | None:
    """Bring the lake up to the database; None where another process is at it.

    Args:
        data_root: of the database.
        now: Unix seconds.
        progress: told (runs read, runs to read).

    Raises:
        DatabaseError: the lake cannot be written; what was there before stays and counts.
    """
    begin = time.perf_counter()
    with building(data_root) as builder:
        if builder is None:
            return None
        report = Report()
        with Catalogue(data_root, seed=lambda wanted: Lake(data_root).rows(wanted)) as catalogue:
            signed = catalogue.refresh(int(now * 1e9))
            read = partial(_read_runs, data_root, catalogue, now, report)
            work = Work(data_root, ended_runs(signed, now), read, builder, now, report)
            try:
                while not work.carry_out(Lake(data_root), progress):
                    pass  # each turn leaves a damaged part out
                builder.sweep()
            except OSError as error:
                message = f"the lake was not brought up to date: {error.strerror or error}; what it had stays"
                raise DatabaseError(message) from error
        report.runs = sum(part.runs for part in builder.parts)
    report.took_s = time.perf_counter() - begin
    return report


def ended_runs(signed: Sequence[Signed], now: float) -> dict[str, list[Ended]]:
    """Table → its runs that belong into the lake, ordered; `signed` as `Catalogue.refresh` gives them."""
    found: dict[str, list[Ended]] = {}
    for table, index, signature, state in signed:
        fields = (signature or "").split(",")
        if not fields[0].isdecimal():
            continue  # without log folder, or too young
        quiet_s = now - max(map(int, fields[:1] + fields[3:])) / 1e9  # see Signatures
        if (state is None or state in LIVE_STATES) and quiet_s < QUIET_S:
            continue
        csv_bytes = int(fields[2]) if len(fields) > 2 else 0  # noqa: PLR2004 - see Signatures
        if csv_bytes <= MAX_CSV_BYTES:
            found.setdefault(table, []).append(Ended(index, signature, csv_bytes))
    return {table: sorted(runs, key=lambda one: one.index) for table, runs in sorted(found.items())}


def _read_runs(
    root: Path, catalogue: Catalogue, now: float, report: Report, table: str, wanted: Sequence[Ended]
) -> Iterator[RunData]:
    """Runs as they are now, but those that changed since the catalogue looked, or cannot be kept."""
    for one in wanted:
        found = catalogue.row(table, one.index)
        if found is None or found[1] != one.signature:
            continue
        data = RunData(*found)
        try:
            fill(root, data)
        except (BrokenFileError, OSError, UnicodeEncodeError) as error:
            report.problems.append(f"{table}/{one.index}: {error}")
            continue
        data.files = read_files(root, table, one.index)
        with Signatures(root, int(now * 1e9)) as signatures:
            if signatures.of(table, one.index) == one.signature:
                yield data


def fill(root: Path, data: RunData) -> None:
    """Read what a run recorded.

    Raises:
        BrokenFileError, OSError: its files cannot be read. UnicodeEncodeError: a lake cannot hold its texts.
    """
    table = str(data.row[0])
    data.rows = read_rows(root, table, data.index)
    data.system = read_system(root, table, data.index)
    "".join(text for text in data.row if isinstance(text, str)).encode()


class Work:
    """One build; `read` gives those of some runs of a table that can be kept now."""

    def __init__(
        self,
        data_root: Path,
        ended: dict[str, list[Ended]],
        read: Callable[[str, Sequence[Ended]], Iterable[RunData]],
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
        """Write what has to be written, part by part; False where one of the lake's turned out damaged."""
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
            except BrokenFileError as error:  # of the lake: those of runs are told of as problems
                gone = {one.part.name for one, _ in job.old}
                warn(f"a part of the lake cannot be read ({error}); its runs are read again")
                self._builder.publish([part for part in self._builder.parts if part.name not in gone])
                return False
        return True

    def _write(self, table: str, job: Job) -> None:
        fresh = list(self._read(table, job.fresh))
        self._report.read += len(fresh)
        self._report.left_out += len(job.fresh) - len(fresh)
        gone = {one.part.name for one, _ in job.old}
        parts = [part for part in self._builder.parts if part.name not in gone]
        if fresh or any(keep for _, keep in job.old):
            parts.append(self._part(table, job, fresh))
            self._report.parts += 1
        self._builder.publish(parts)

    def _part(self, table: str, job: Job, fresh: list[RunData]) -> Part:
        indexes = [data.index for data in fresh]
        indexes += [one.indexes[place] for one, places in job.old for place in places]
        name = self._builder.new_name(table, min(indexes).rpartition("/")[0])
        sizes, footers, runs = {}, {}, 0
        for file in NAMES:
            whole = self._joined(file, job, fresh)
            runs = whole.num_rows if file == "runs" else runs
            sizes[file], footers[file] = self._builder.write(name, file, partial(write_parquet, file, whole))
        return Part(name, table, min(indexes), max(indexes), runs, job.csv_bytes, sizes, footers, self._now)

    def _joined(self, file: str, job: Job, fresh: list[RunData]) -> pa.Table:
        """One file of the new part: what stays of the old ones, then the fresh runs, numbered anew."""
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


def kept(table: pa.Table, places: Sequence[int], base: int) -> pa.Table:
    """The rows of some runs of a part, numbered from `base` in the order of `places`."""
    import numpy as np
    import pyarrow as pa

    numbers = np.full(MAX_RUNS + 1, -1, dtype=np.int32)
    numbers[np.asarray(places)] = np.arange(base, base + len(places), dtype=np.int32)
    new = numbers[table["place"].to_numpy()]
    stay = pa.array(new >= 0)
    return table.set_column(0, "place", pa.array(new)).filter(stay)


def write_parquet(name: str, table: pa.Table, sink: BinaryIO) -> None:
    """Write a part's file: damage is found by a checksum of each page."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(
        sink,
        table.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=["run", "metric", "name", "step.list.element", "kind"],
        write_page_checksum=True,
    ) as writer:
        for group in in_groups(name, table):
            writer.write_table(group, row_group_size=max(group.num_rows, 1))


@dataclass(slots=True)
class Findings:
    """What `verify` found.

    Attributes:
        checked: runs that were read again.
        changed: runs whose files changed since the build, which readers see by themselves.
        wrong: runs of which the lake says something else than their files, without a sign of a change.
        broken: parts that cannot be read, and why.
        dropped: whether the parts of those were taken out of the lake.
    """

    checked: int = 0
    changed: int = 0
    wrong: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    dropped: bool = False


def verify(data_root: Path, now: float, progress: Progress | None = None) -> Findings:
    """Compare each run of the lake with its files, bit by bit; parts that are wrong leave the lake.

    Raises:
        DatabaseError: they cannot be taken out, because the lake cannot be written.
    """
    found = Findings()
    lake = Lake(data_root)

    def told() -> Iterator[PartRuns]:
        total, done = sum(len(one.indexes) for one in lake.parts), 0
        for one in list(lake.parts):
            if progress is not None:
                progress(done, total)
            done += len(one.indexes)
            yield one

    def check(one: PartRuns) -> list[str]:
        with Signatures(data_root, int(now * 1e9)) as signatures:
            return wrong_runs(data_root, one, partial(_read_same, data_root, signatures, one), found)

    bad = bad_parts(lake, told(), check, found)
    if bad:
        with building(data_root) as builder:
            if builder is not None:
                builder.publish([part for part in builder.parts if part.name not in bad])
                found.dropped = True
    return found


def bad_parts(
    lake: Lake, parts: Iterable[PartRuns], check: Callable[[PartRuns], list[str]], found: Findings
) -> set[str]:
    """Names of the parts that cannot be read, or in which `check` finds runs wrong; told in `found`."""
    bad = set()
    for one in parts:
        try:
            wrong = check(one)
        except (BrokenFileError, OSError) as error:
            lake.leave_out(one.part, error)
            continue
        if wrong:
            found.wrong += [f"{one.part.table}/{index}" for index in wrong]
            bad.add(one.part.name)
    found.broken = [(part.name, why) for part, why in lake.broken]
    return bad | {name for name, _ in found.broken}


def wrong_runs(data_root: Path, one: PartRuns, read: Reread, found: Findings) -> list[str]:
    """Indexes of a part's runs that have their signature and other content.

    `read` gets a run's place and its row in `runs`, and gives None for one that changed since.

    Raises:
        BrokenFileError, OSError: the part cannot be read.
    """
    stored = {name: _by_place(read_table(data_root, one.part, name)) for name in _COMPARED}
    read_table(data_root, one.part, "files")
    wrong = []
    for place, index in enumerate(one.indexes):
        fresh = read(place, stored["runs"][place])
        if fresh is None:
            found.changed += 1
            continue
        found.checked += 1
        tables = make_tables([fresh], _COMPARED)
        if any(_by_place(tables[name]).get(0) != stored[name].get(place) for name in _COMPARED):
            wrong.append(index)
    return wrong


def _read_same(
    data_root: Path, signatures: Signatures, one: PartRuns, place: int, stored: Sequence[Any]
) -> RunData | None:
    """A run from its files, None where they changed; its kinds, which no signature covers, as stored."""
    table, index, signature = one.part.table, one.indexes[place], one.signatures[place]
    if signatures.of(table, index) != signature:
        return None
    kinds = tuple(str(stored[0][2 + COLUMNS.index("kinds")]).split())  # behind run and signature
    data = RunData(catalogue_row(data_root, table, index, kinds), signature)
    data.rows, data.system = read_rows(data_root, table, index), read_system(data_root, table, index)
    return data if signatures.of(table, index) == signature else None


def _by_place(table: pa.Table) -> dict[int, list[tuple[Any, ...]]]:
    """Place → the rest of its rows, ordered; lists of numbers as bytes, so that NaN is compared, too."""
    import pyarrow as pa

    found: dict[int, list[tuple[Any, ...]]] = {}
    for batch in table.combine_chunks().to_batches():
        columns: list[Sequence[Any]] = []
        for column in batch.columns[1:]:
            if pa.types.is_list(column.type) and pa.types.is_floating(column.type.value_type):
                flat, ends = column.values.to_numpy(zero_copy_only=False), column.offsets.to_pylist()
                columns.append(
                    [
                        flat[ends[row] : ends[row + 1]].tobytes() if valid else None
                        for row, valid in enumerate(column.is_valid().to_pylist())
                    ]
                )
            else:
                columns.append(
                    [repr(value) if isinstance(value, float) else value for value in column.to_pylist()]
                )
        for place, *rest in zip(batch.column(0).to_pylist(), *columns, strict=True):
            found.setdefault(place, []).append(tuple(rest))
    return {place: sorted(rows, key=lambda row: row[:2]) for place, rows in found.items()}


@dataclass(frozen=True, slots=True)
class Status:
    """The lake in numbers.

    Attributes:
        parts: that count, with `bytes` in their files.
        inside: runs that are read from it.
        changed: runs in it that changed since, or are gone.
        missing: ended runs that the next build takes in.
        live: runs that are not ended, always read from their files.
        built: when the newest part was written, Unix seconds.
    """

    parts: int
    bytes: int
    inside: int
    changed: int
    missing: int
    live: int
    built: float | None


def status(data_root: Path, now: float) -> Status:
    """Count."""
    lake = Lake(data_root)
    with Catalogue(data_root, seed=lake.rows) as catalogue:
        signed = catalogue.refresh(int(now * 1e9))
    ended = {
        (table, one.index): one.signature for table, runs in ended_runs(signed, now).items() for one in runs
    }
    held = lake.signatures()
    inside = sum(ended.get(run) == signature for run, signature in held.items())
    return Status(
        len(lake.parts),
        sum(sum(one.part.sizes.values()) for one in lake.parts),
        inside,
        len(held) - inside,
        len(ended) - inside,
        len(signed) - len(ended),
        max((one.part.written for one in lake.parts), default=None),
    )


def in_groups(name: str, table: pa.Table) -> Iterable[pa.Table]:
    """A part's table in the order and the row groups that it is written in."""
    import numpy as np
    import pyarrow.compute as pc

    if name not in {"rows", "system"}:
        by = {"params": "name", "last": "metric"}.get(name)
        yield table if by is None else table.sort_by([(by, "ascending"), ("place", "ascending")])
        return
    table = table.sort_by([("metric", "ascending"), ("place", "ascending")])
    metrics = table["metric"].to_pylist()
    cells = pc.fill_null(pc.list_value_length(table["value"]), 0).to_numpy(zero_copy_only=False)
    total = np.cumsum(cells)
    begin = before = 0
    for row, metric in enumerate(metrics):
        full = total[row] - before >= GROUP_CELLS
        if (
            full
            or row + 1 == len(metrics)
            or (metrics[row + 1] != metric and total[row] - before >= GROUP_CELLS // 4)
        ):
            yield table.slice(begin, row + 1 - begin)
            begin, before = row + 1, int(total[row])
    if not metrics:
        yield table
