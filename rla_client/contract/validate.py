"""Numbers that another process wrote, checked."""

from __future__ import annotations

import math
from typing import Any

MAX_WHOLE = 1 << 64  # inodes and device numbers have 64 bits
INT64 = 1 << 63  # one more than the largest of 64 bits with a sign
MAX_TIME_S = 1 << 37  # the year 6325: every date library takes it


def whole(raw: Any, limit: int = MAX_WHOLE) -> int:  # noqa: ANN401 - foreign data
    """A whole number from 0 to below `limit`.

    Raises:
        TypeError: it is no number.
        ValueError: it is another one.
        OverflowError: it is infinite.
    """
    found = int(raw)
    if 0 <= found < limit:
        return found
    message = f"{found!r:.40} is not from 0 to {limit - 1}"
    raise ValueError(message)


def number(raw: Any) -> float:  # noqa: ANN401 - foreign data
    """A number, infinite ones too.

    Raises:
        TypeError: it is none.
        ValueError: it is none, or NaN.
        OverflowError: it is a whole number beyond all floats.
    """
    found = float(raw)
    if not math.isnan(found):
        return found
    message = f"{raw!r:.40} is no number"
    raise ValueError(message)


def moment(raw: Any) -> float:  # noqa: ANN401 - foreign data
    """Unix seconds, from 0 to below MAX_TIME_S.

    Raises:
        TypeError, ValueError, OverflowError: as for `number`; ValueError for moments beyond, too.
    """
    found = number(raw)
    if 0 <= found < MAX_TIME_S:
        return found
    message = f"{found!r} is no moment in Unix seconds"
    raise ValueError(message)
