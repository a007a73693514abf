"""Statistics of the lake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rla_client.database.catalogue import Catalogue
from rla_client.database.lake.build import ended_runs
from rla_client.database.lake.lake_reader import Lake


@dataclass(frozen=True, slots=True)
class Status:
    """The lake in numbers.

    Attributes:
        parts: number of parts.
        bytes: bytes of their files.
        inside: runs that are read from the lake.
        changed: runs in the lake that have changed since, or no longer exist.
        missing: ended runs that the next build adds.
        live: runs that have not ended, which are always read from their files.
        built: time when the newest part was written, Unix seconds.
    """

    parts: int
    bytes: int
    inside: int
    changed: int
    missing: int
    live: int
    built: float | None


def status(data_root: Path, now: float) -> Status:
    """Status of the lake as of now."""
    lake = Lake(data_root)
    with Catalogue(data_root, seed=lake.rows) as catalogue:
        signed = catalogue.refresh(int(now * 1e9))
    ended = {
        (table, one.index): (one.signature, one.samples)
        for table, runs in ended_runs(data_root, signed, now).items()
        for one in runs
    }
    held = lake.all_signatures()
    inside = sum(ended.get(run) == signatures for run, signatures in held.items())
    return Status(
        len(lake.parts),
        sum(sum(one.part.sizes.values()) for one in lake.parts),
        inside,
        len(held) - inside,
        len(ended) - inside,
        len(signed) - len(ended),
        max((one.part.written for one in lake.parts), default=None),
    )
