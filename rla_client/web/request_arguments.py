"""Checked arguments of a page's requests."""

from __future__ import annotations

from typing import Any, TypeGuard

from rla_client.contract.errors import ArgumentError
from rla_client.database.curves.rank_tables import Ranks, parse_ranks
from rla_client.web.run_registry import PageRun, Site

MAX_NUMBER = 1e300  # absolute value of a number in a request


def asked_run(site: Site, asked: dict[str, Any]) -> PageRun:
    """The run that a request names.

    Raises:
        NoSuchRunError: there is none.
    """
    return site.find(str(asked.get("run", "")))


def asked_ranks(asked: dict[str, Any]) -> Ranks | None:
    """The ranks that a request names, see `parse_ranks`.

    Raises:
        ArgumentError: they are not understood.
    """
    return parse_ranks(str(asked.get("ranks") or "") or None)


def whole_number(asked: dict[str, Any], name: str, default: int = 0) -> int:
    """A whole number of a request, 0 or larger.

    Raises:
        ArgumentError: the value is something else.
    """
    value = asked.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ArgumentError(f"{name} must be a whole number")
    return value


def number(asked: dict[str, Any], name: str, default: float) -> float:
    """A finite number of a request.

    Raises:
        ArgumentError: the value is something else.
    """
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_NUMBER < value < MAX_NUMBER:
        raise ArgumentError(f"{name} must be a number")
    return float(value)


def asked_range(asked: object, whole: tuple[float, float]) -> tuple[float, float]:
    """The range of a request, or the whole if it is None.

    Raises:
        ArgumentError: the range is not [low, high].
    """
    if asked is None:
        return whole
    if (
        not isinstance(asked, list)
        or len(asked) != 2  # noqa: PLR2004 - low and high
        or not all(isinstance(one, int | float) and -MAX_NUMBER < one < MAX_NUMBER for one in asked)
        or not asked[0] < asked[1]
    ):
        raise ArgumentError("range must be [low, high]")
    return float(asked[0]), float(asked[1])


def asked_names(names: object, what: str) -> list[str]:
    """A list of names of a request.

    Raises:
        ArgumentError: the value is something else.
    """
    if not is_texts(names):
        raise ArgumentError(f"{what} must be a list of names")
    return names


def is_texts(value: object) -> TypeGuard[list[str]]:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
