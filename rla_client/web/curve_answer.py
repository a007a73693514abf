"""The binary answer of a panel's curves.

4 bytes length of the head, 4 bytes zero, the head as JSON padded to 8 bytes; then x as float64; then each
series as float32, or float64 where that would be seen (`wide`). A series of a band is its centre, followed by
its low and high edge. NaN stands where a series has no point.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import Response

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
FLOAT32 = (1e-37, float(1 << 24))  # sizes that it holds with all the digits that are shown
FLOAT32_ROUNDS = 2.0**-24  # of a value, at most
SHOWN_STEPS = 4096  # of a curve's height: what float32 rounds away is less than one of them
_HEAD = struct.Struct("<II")


def encode(head: dict[str, Any], xs: Array, series: Sequence[Array]) -> bytes:
    """See the module's text."""
    wide = any(_needs_float64(one[np.isfinite(one)]) for one in series)
    head = {**head, "points": len(xs), "series": len(series), "wide": wide}
    text = json.dumps(head, allow_nan=False).encode()
    kind = "<f8" if wide else "<f4"
    return b"".join(
        [
            _HEAD.pack(len(text), 0),
            text.ljust(-(-len(text) // 8) * 8),
            xs.astype("<f8").tobytes(),
            *(one.astype(kind).tobytes() for one in series),
        ]
    )


def curve_response(head: dict[str, Any], xs: Array, series: Sequence[Array]) -> Response:
    """The HTTP response with the binary answer."""
    return Response(encode(head, xs, series), media_type="application/octet-stream")


def _needs_float64(ys: Array) -> bool:
    """Whether float32 would change digits of some values, or their curve: one that varies little."""
    sizes = np.abs(ys[ys != 0])
    if not sizes.size:
        return False
    if sizes.max() > FLOAT32[1] or sizes.min() < FLOAT32[0]:
        return True
    return bool(0 < np.ptp(ys) < sizes.max() * FLOAT32_ROUNDS * SHOWN_STEPS)
