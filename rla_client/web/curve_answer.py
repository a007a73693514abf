"""The binary answer of a panel's curves.

4 bytes length of the head, 4 bytes zero, the head as JSON padded to 8 bytes; then x as float64; then each
series as float32, or as float64 where float32 would visibly differ (`wide`). A band is three series: its
centre, its low edge, its high edge. NaN marks an x at which a series has no point.
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
FLOAT32 = (1e-37, float(1 << 24))  # magnitudes of which float32 keeps all digits that the page shows
FLOAT32_ROUNDS = 2.0**-24  # relative rounding error of float32, at most
SHOWN_STEPS = 4096  # in a curve's height: a rounding error below one of them is invisible
_HEAD = struct.Struct("<II")


def encode(head: dict[str, Any], xs: Array, series: Sequence[Array]) -> bytes:
    """The answer's bytes, in the format that the module's docstring describes."""
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
    """Whether float32 would change shown digits, or the shape of a curve that varies little."""
    sizes = np.abs(ys[ys != 0])
    if not sizes.size:
        return False
    if sizes.max() > FLOAT32[1] or sizes.min() < FLOAT32[0]:
        return True
    return bool(0 < np.ptp(ys) < sizes.max() * FLOAT32_ROUNDS * SHOWN_STEPS)
