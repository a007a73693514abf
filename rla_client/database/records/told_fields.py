"""Declared fields of a run.

A new field needs only an entry in `TOLD_FIELDS`. Filters, `rla ls`, `Database.runs` and the catalogue,
which is rebuilt, then have it by its name; `shown_in` adds it to displays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rla_client.contract.run_file import RUN_FILE

ENVIRONMENT_FILE = "environment.json"
Kind: TypeAlias = Literal["text", "number", "moment"]
Place: TypeAlias = Literal["show", "page", "sql"]


@dataclass(frozen=True, slots=True)
class ToldField:
    """A field of a run, read from one of its files.

    Attributes:
        name: its key in the file, and its name in filters and columns.
        kind: type of the value; a `moment` is Unix seconds.
        source: the file; in `environment.json` the key may be in the git section.
        shown_in: displays: `rla show` (text and JSON), the run's page, a column of `runs` in `rla sql`.
    """

    name: str
    kind: Kind = "text"
    source: str = RUN_FILE
    shown_in: tuple[Place, ...] = ()


TOLD_FIELDS = (
    ToldField("reason"),
    ToldField("exit_code", "number"),
    ToldField("signal", "number"),
    ToldField("closed", "moment"),
    ToldField("last_row", "moment"),
    ToldField("rows", "number"),
    ToldField("lost"),
    ToldField("lost_others"),
    ToldField("parent"),
    ToldField("user"),
    ToldField("pid", "number"),
    ToldField("run_id"),
    ToldField("commit", source=ENVIRONMENT_FILE, shown_in=("show",)),
    ToldField("branch", source=ENVIRONMENT_FILE, shown_in=("show",)),
    ToldField("group", source=ENVIRONMENT_FILE, shown_in=("show",)),
    ToldField("job_type", source=ENVIRONMENT_FILE, shown_in=("show",)),
)


def names_from(source: str) -> tuple[str, ...]:
    """Names of the fields from one file."""
    return tuple(one.name for one in TOLD_FIELDS if one.source == source)


def shown_in(place: Place) -> tuple[ToldField, ...]:
    """Fields that one display shows."""
    return tuple(one for one in TOLD_FIELDS if place in one.shown_in)
