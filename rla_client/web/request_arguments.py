"""The checked arguments of a page's questions."""

from __future__ import annotations

from typing import Any, TypeGuard

from rla_client.contract.errors import ArgumentError

MAX_NUMBER = 1e300  # that is asked for


def number(asked: dict[str, Any], name: str, default: float) -> float:
    """A finite number that is asked for."""
    value = asked.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_NUMBER < value < MAX_NUMBER:
        raise ArgumentError(f"{name} must be a number")
    return float(value)


def asked_range(asked: object, whole: tuple[float, float]) -> tuple[float, float]:
    """The ends that are asked for, or those of the whole.

    Raises:
        ArgumentError: it is not [low, high].
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
    """A list of names that is asked for; ArgumentError where it is none."""
    if not is_texts(names):
        raise ArgumentError(f"{what} must be a list of names")
    return names


def is_texts(value: object) -> TypeGuard[list[str]]:
    """Whether something that was asked is a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
