"""Build of a bucket's lake.

The manifest is replaced last, on condition that it is the one that the build began with. So a build that is
killed leaves objects that do not count, and of two builds at once one is refused. What does not count is
deleted by a later build, `KEEP_S` after it was written: another build, or a reader, may need it until then.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, BinaryIO, Final

from rla_client.contract.errors import BrokenFileError, UnsafeNameError
from rla_client.database.catalogue import COLUMNS
from rla_client.database.lake.bucket_lake import THREADS, BucketLake, BusyError, Objects
from rla_client.database.lake.build import LakeBuild, Progress, Report
from rla_client.database.lake.build_plan import EndedRun
from rla_client.database.lake.lake_reader import Lake, PartRuns
from rla_client.database.lake.lake_writer import Builder
from rla_client.database.lake.manifest import LAKE, NAMES, TABLES, LakePart
from rla_client.database.lake.run_tables import LakeRun
from rla_client.database.lake.verify import Findings, bad_parts, wrong_runs

KEEP_S: Final = 86400.0
RunName = tuple[str, str]


class BucketBuilder(Builder):
    """Writes parts into a bucket, and here, where the build reads them."""

    def __init__(self, lake: BucketLake) -> None:
        super().__init__(lake.root)
        self._lake = lake

    def write(self, part: str, name: str, write: Callable[[BinaryIO], None]) -> tuple[int, int]:
        """Write a file of a new part."""
        made = super().write(part, name, write)
        key = f"{LAKE}/{part}/{name}.parquet"
        self._lake.put(key, (self._lake.root / key).read_bytes())
        return made

    def fetch(self, part: LakePart, name: str) -> None:
        """Have a file of an old part here."""
        self._lake.fetch(part, name)

    def put_manifest(self, data: bytes) -> None:
        """Replace the bucket's manifest, then the one here.

        Raises:
            BusyError: another build has done so since this one began.
        """
        self._lake.put_manifest(data)
        super().put_manifest(data)

    def sweep_bucket(self, now: float) -> None:
        """Delete objects of parts that do not count and are `KEEP_S` old."""
        keep = {part.name for part in self.parts}
        self._lake.delete(
            [
                meta["path"]
                for meta in self._lake.list(f"{LAKE}/{TABLES}")
                if meta["path"].removeprefix(f"{LAKE}/").rpartition("/")[0] not in keep
                and now - meta["last_modified"].timestamp() > KEEP_S
            ]
        )


def build_bucket(lake: BucketLake, now: float, progress: Progress | None = None) -> Report | None:
    """Bring a bucket's lake up to its runs; None where another build has published meanwhile.

    Raises:
        DatabaseError: the bucket cannot be read or written; what counted before still does.
    """
    begin = time.perf_counter()
    runs, _ = lake.runs(now)
    lake.add_samples(runs)
    ended: dict[str, list[EndedRun]] = {}
    for (table, index), objects in sorted(runs.items()):
        one = EndedRun(index, objects.signature, objects.table_bytes, objects.samples_signature)
        ended.setdefault(table, []).append(one)
    held = Lake(lake.root).all_signatures()
    changed = {
        run: one for run, one in runs.items() if held.get(run) != (one.signature, one.samples_signature)
    }
    lake.add_others(changed)
    report = Report()
    builder = BucketBuilder(lake)
    work = LakeBuild(lake.root, ended, partial(_read_runs, lake, runs, report), builder, now, report)
    try:
        while not work.carry_out(Lake(lake.root), progress):
            lake.add_others({run: one for run, one in runs.items() if run not in changed})
            changed = runs
        builder.sweep_bucket(now)
    except BusyError:
        return None
    report.problems += [f"an object whose key is no file name: {key!r}" for key in sorted(lake.left_out)]
    report.runs = sum(part.runs for part in builder.parts)
    report.took_s = time.perf_counter() - begin
    return report


def _read_runs(
    lake: BucketLake, runs: dict[RunName, Objects], report: Report, table: str, wanted: Sequence[EndedRun]
) -> Iterator[LakeRun]:
    def read(one: EndedRun) -> LakeRun | str | None:
        try:
            return lake.read(table, one.index, runs[table, one.index])
        except (BrokenFileError, OSError, UnicodeEncodeError, UnsafeNameError) as error:
            return f"{table}/{one.index}: {error}"

    with ThreadPoolExecutor(THREADS) as pool:
        for data in pool.map(read, wanted):
            if isinstance(data, str):
                report.problems.append(data)
            elif data is not None:
                yield data


def verify_bucket(lake: BucketLake, now: float, progress: Progress | None = None) -> Findings:
    """Compare each run of a bucket's lake with its objects; parts that are wrong leave the lake.

    Raises:
        BusyError: they could not be taken out, because another build published meanwhile.
        DatabaseError: the bucket cannot be read or written.
    """
    found = Findings()
    runs, _ = lake.runs(now)
    lake.add_samples(runs)
    lake.add_others(runs)
    local = Lake(lake.root)

    def fetched() -> Generator[PartRuns, None, None]:
        parts = list(local.parts)
        for done, one in enumerate(parts):
            if progress is not None:
                progress(done, len(parts))
            lake.fetch_all((one.part, name) for name in NAMES)
            try:
                yield one
            finally:
                shutil.rmtree(lake.root / LAKE / one.part.name)

    def check(one: PartRuns) -> list[str]:
        return wrong_runs(lake.root, one, partial(_reread, lake, runs, one), found)

    with closing(fetched()) as parts:
        bad = bad_parts(local, parts, check, found)
    if bad:
        builder = BucketBuilder(lake)
        builder.publish([part for part in builder.parts if part.name not in bad])
        found.dropped = True
    return found


def _reread(
    lake: BucketLake, runs: dict[RunName, Objects], one: PartRuns, place: int, stored: Sequence[Any]
) -> LakeRun | None:
    objects = runs.get((one.part.table, one.indexes[place]))
    if objects is None or objects.signature != one.signatures[place]:
        return None
    if one.samples_signatures[place] not in {"", objects.samples_signature}:
        return None
    data = lake.read(one.part.table, one.indexes[place], objects)
    if data is not None:  # no signature covers the kinds
        at = COLUMNS.index("kinds")
        data.row = (*data.row[:at], stored[0][2 + at], *data.row[at + 1 :])
    return data
