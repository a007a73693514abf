"""Exact comparison of the lake with the files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError
from rla_client.database.catalogue import COLUMNS, catalogue_row
from rla_client.database.change_signatures import SamplesSignatures, Signatures
from rla_client.database.lake.build import Progress, fill
from rla_client.database.lake.lake_reader import Lake, PartRuns
from rla_client.database.lake.lake_writer import building
from rla_client.database.lake.part_files import read_table
from rla_client.database.lake.run_tables import LakeRun, make_tables

if TYPE_CHECKING:
    import pyarrow as pa


_COMPARED = (
    "runs",
    "params",
    "last",
    "rows",
    "system",
    "samples",
)  # not `files`: they may have changed since the part was written
Reread = Callable[[int, Sequence[Any]], LakeRun | None]


@dataclass(slots=True)
class Findings:
    """Result of `verify`.

    Attributes:
        checked: number of runs that were read again.
        changed: number of runs that have changed since the build, which readers detect by signature.
        wrong: runs that differ from their files although their signature is the same.
        broken: parts that cannot be read, and their errors.
        dropped: whether the parts of those were removed from the lake.
    """

    checked: int = 0
    changed: int = 0
    wrong: list[str] = field(default_factory=list)
    broken: list[tuple[str, str]] = field(default_factory=list)
    dropped: bool = False


def verify(data_root: Path, now: float, progress: Progress | None = None) -> Findings:
    """Compare each run of the lake with its files, bit by bit; wrong parts are removed from the lake.

    Raises:
        DatabaseError: wrong parts cannot be removed, because the lake cannot be written.
    """
    found = Findings()
    lake = Lake(data_root)

    def parts_with_progress() -> Iterator[PartRuns]:
        total, done = sum(len(one.indexes) for one in lake.parts), 0
        for one in list(lake.parts):
            if progress is not None:
                progress(done, total)
            done += len(one.indexes)
            yield one

    samples = SamplesSignatures(data_root, int(now * 1e9))

    def check(one: PartRuns) -> list[str]:
        with Signatures(data_root, int(now * 1e9)) as signatures:
            reread = partial(_read_same, data_root, signatures, samples, one)
            return wrong_runs(data_root, one, reread, found)

    bad = bad_parts(lake, parts_with_progress(), check, found)
    if bad:
        with building(data_root) as builder:
            if builder is not None:
                builder.publish([part for part in builder.parts if part.name not in bad])
                found.dropped = True
    return found


def bad_parts(
    lake: Lake, parts: Iterable[PartRuns], check: Callable[[PartRuns], list[str]], found: Findings
) -> set[str]:
    """Names of the parts that cannot be read, or have wrong runs by `check`; both are added to `found`."""
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
    """Indexes of a part's runs that have the same signature as their files, but other content.

    `read` takes a run's place and its row in `runs`, and returns None for a run that has changed.

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
    data_root: Path,
    signatures: Signatures,
    samples: SamplesSignatures,
    one: PartRuns,
    place: int,
    stored: Sequence[Any],
) -> LakeRun | None:
    """A run read from its files, with its stored kinds, which no signature covers; None if it has changed."""
    table, index, signature = one.part.table, one.indexes[place], one.signatures[place]

    def samples_same() -> bool:
        held = one.samples_signatures[place]
        return not held or samples.of(table, index)[0] == held

    if signatures.of(table, index, signature) != signature or not samples_same():
        return None
    kinds = tuple(str(stored[0][2 + COLUMNS.index("kinds")]).split())  # columns after run and signature
    data = LakeRun(catalogue_row(data_root, table, index, kinds), signature)
    data.samples_signature = one.samples_signatures[place]
    fill(data_root, data)
    same = signatures.of(table, index, signature) == signature and samples_same()
    return data if same else None


def _by_place(table: pa.Table) -> dict[int, list[tuple[Any, ...]]]:
    """Place → the other cells of its rows, sorted, in a form in which NaN equals NaN."""
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
                cells = column.to_pylist()
                columns.append([repr(cell) if isinstance(cell, float | list) else cell for cell in cells])
        for place, *rest in zip(batch.column(0).to_pylist(), *columns, strict=True):
            found.setdefault(place, []).append(tuple(rest))
    return {place: sorted(rows, key=lambda row: (str(row[0]), str(row[1]))) for place, rows in found.items()}
