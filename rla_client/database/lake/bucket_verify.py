"""Comparison of a bucket's lake with its objects."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from rla_client.database.catalogue import COLUMNS
from rla_client.database.lake.bucket_lake import BucketLake
from rla_client.database.lake.bucket_objects import Objects, RunName
from rla_client.database.lake.bucket_writer import BucketBuilder
from rla_client.database.lake.build import Progress
from rla_client.database.lake.lake_reader import Lake, PartRuns
from rla_client.database.lake.manifest import LAKE, NAMES
from rla_client.database.lake.run_tables import LakeRun
from rla_client.database.lake.verify import Findings, bad_parts, wrong_runs


def verify_bucket(lake: BucketLake, now: float, progress: Progress | None = None) -> Findings:
    """Compare each run of a bucket's lake with its objects; wrong parts are removed from the lake.

    Raises:
        BusyError: wrong parts stay, because another build has published in the meantime.
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
