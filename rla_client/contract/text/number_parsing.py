"""Bounded parsing of untrusted numbers."""

from __future__ import annotations

import math
from typing import Any

MAX_WHOLE = 1 << 64  # inodes and device numbers have 64 bits
INT64 = 1 << 63  # one more than the largest of 64 bits with a sign
MAX_TIME_S = 1 << 37  # the year 6325: every date library takes it


def parse_uint(raw: Any, limit: int = MAX_WHOLE) -> int:  # noqa: ANN401 - foreign data
    """A whole number from 0 to below `limit`.

    Raises:
        TypeError: it is not a number.
        ValueError: it is another one.
        OverflowError: it is infinite.
    """
    found = int(raw)
    if 0 <= found < limit:
        return found
    raise ValueError(f"{found!r:.40} is not from 0 to {limit - 1}")


def parse_number(raw: Any) -> float:  # noqa: ANN401 - foreign data
    """A number, infinite ones too.

    Raises:
        TypeError: it is none.
        ValueError: it is none, or NaN.
        OverflowError: it is a whole number beyond all floats.
    """
    found = float(raw)
    if not math.isnan(found):
        return found
    raise ValueError(f"{raw!r:.40} is not a number")


def parse_moment(raw: object) -> float:
    """Unix seconds, from 0 to below MAX_TIME_S.

    Raises:
        TypeError, ValueError, OverflowError: as for `parse_number`; ValueError for moments beyond, too.
    """
    found = parse_number(raw)
    if 0 <= found < MAX_TIME_S:
        return found
    raise ValueError(f"{found!r} is not a moment in Unix seconds")
