"""Exclusion of values from outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import SINKS

SET_THE_STEP = "set the step with time_step_holder.set_time(step)"
Exclude = str | Iterable[str] | None
Row = dict[str, Any]


def sink_names(exclude: Exclude) -> tuple[str, ...]:
    """Check and normalise `exclude`.

    Raises:
        ArgumentError: a name that is not a sink, or a number (a step, as `add_scalar` takes it).
    """
    if exclude is None:
        return ()
    try:
        names = (exclude,) if isinstance(exclude, str) else tuple(exclude)
    except TypeError as error:
        raise ArgumentError(
            f"the third argument of record_tabular is `exclude`, the outputs to leave out, got {exclude!r}; "
            f"{SET_THE_STEP}"
        ) from error
    for name in names:
        if name not in SINKS:
            raise ArgumentError(f"exclude={name!r} is not an output; choose from {', '.join(SINKS)}")
    return names


def check_prefix(place: str, prefix: object) -> None:
    """Refuse what is not text before names.

    Raises:
        ArgumentError: it is none, as a step in this place.
    """
    if not isinstance(prefix, str):
        raise ArgumentError(f"the {place} is a text put before each name, got {prefix!r}; {SET_THE_STEP}")


def without(row: Row, excluded: Mapping[str, tuple[str, ...]], sink: str) -> Row:
    """The row as one sink gets it."""
    if not excluded:
        return row
    return {key: value for key, value in row.items() if sink not in excluded.get(key, ())}
