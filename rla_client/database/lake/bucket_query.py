"""SQL over a bucket's lake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rla_client.contract.errors import DatabaseError
from rla_client.database.lake.bucket_lake import BucketLake
from rla_client.database.lake.lake_reader import Lake, RunName
from rla_client.database.lake.sql_session import SqlSession, views_in

if TYPE_CHECKING:
    import duckdb

    from rla_client.database.lake.sql_query import Clock


def query_bucket(
    lake: BucketLake, query: str, now: float, timing: Clock
) -> tuple[duckdb.DuckDBPyConnection, int]:
    """Run one SELECT over the runs that a bucket's lake holds as they are; and how many runs it lacks.

    Raises:
        As `Database.sql`.
    """
    if lake.etag is None:
        raise DatabaseError(
            f"{lake.address} has no lake\nhint: is the prefix right? `rla lake build --bucket` makes one"
        )
    runs, others = lake.runs(now)
    held = Lake(lake.root)
    inside: Mapping[RunName, object] = held.signatures()
    if sampled := "samples" in views_in(query):
        lake.add_samples(runs)
        inside = held.all_signatures()
    lake.fetch_all((one.part, name) for one in held.parts for name in views_in(query))
    signed = [
        (*run, one.signature, None)
        for run, one in runs.items()
        if inside.get(run) == ((one.signature, one.samples_signature) if sampled else one.signature)
    ]
    session = SqlSession(lake.root, query)
    session.fill(None, signed, now)
    return session.execute(timing), len(runs) - len(signed) + others
