"""Build of a bucket's lake."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rla_client.contract.errors import BrokenFileError, UnsafeNameError
from rla_client.database.lake.bucket_lake import THREADS, BucketLake, BusyError
from rla_client.database.lake.bucket_objects import Objects, RunName
from rla_client.database.lake.bucket_writer import BucketBuilder
from rla_client.database.lake.build import LakeBuild, Progress, Report
from rla_client.database.lake.build_plan import EndedRun
from rla_client.database.lake.lake_reader import Lake
from rla_client.database.lake.run_tables import LakeRun


def build_bucket(lake: BucketLake, now: float, progress: Progress | None = None) -> Report | None:
    """Update a bucket's lake to its runs; None if another build has published in the meantime.

    Raises:
        DatabaseError: the bucket cannot be read or written; the old lake stays in effect.
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
