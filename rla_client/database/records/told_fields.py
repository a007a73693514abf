"""Declared fields of a run.

An entry of `TOLD_FIELDS` is all that a further field takes. Filters, `rla ls`, `Database.runs` and the
catalogue, which is read anew, know it by its name; `shown_in` says where people see it without asking.
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
    """A value of a run's file.

    Attributes:
        name: its key in the file, which filters and columns call it, too.
        kind: `moment`: Unix seconds.
        source: the file; in `environment.json` it may stand in the git section.
        shown_in: `rla show` (text and JSON), the run's page, a column of `runs` in `rla sql`.
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
    """The names of the fields that a file tells."""
    return tuple(one.name for one in TOLD_FIELDS if one.source == source)


def shown_in(place: Place) -> tuple[ToldField, ...]:
    """The fields that people see there."""
    return tuple(one for one in TOLD_FIELDS if place in one.shown_in)
