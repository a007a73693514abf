"""Plain data of what `safe_pickle` read: dates, numpy numbers and containers decoded from their bytes. Pure.

Names are only compared with those below, never imported; everything else becomes its description.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any

from rla_client.run.safe_pickle import Placeholder

MAX_PLAIN_DEPTH = 50
MAX_PLAIN_NODES = 1_000_000
_NUMPY_FORMATS = {
    "f2": "e", "f4": "f", "f8": "d", "i1": "b", "i2": "h", "i4": "i", "i8": "q",
    "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "b1": "?",
}  # fmt: skip


def _as_bytes(raw: Any) -> Any:  # noqa: ANN401
    """Bytes as Python 2 wrote them (text), or as Python 3 does below protocol 3 (`_codecs.encode`)."""
    if isinstance(raw, Placeholder) and raw.name in {"_codecs.encode", "__builtin__.bytes"}:
        raw = raw.args[0] if raw.args else ""
    return raw.encode("latin-1") if isinstance(raw, str) else raw


def _date(made: Placeholder) -> Any:  # noqa: ANN401
    raw = made.args[0]
    raw = _as_bytes(raw)
    year, month, day, hour, minute, second = struct.unpack(">HBBBBB", raw[:7])
    return datetime(year, month & 0x7F, day, hour, minute, second, int.from_bytes(raw[7:10], "big"))  # noqa: DTZ001


def _numpy_scalar(made: Placeholder) -> Any:  # noqa: ANN401
    dtype, raw = made.args
    order = ">" if dtype.state.get("", (0, "<"))[1] == ">" else "<"
    raw = _as_bytes(raw)
    return struct.unpack(order + _NUMPY_FORMATS[dtype.args[0].lstrip("<>=|")], raw)[0]


def _numpy_array(made: Placeholder) -> Any:  # noqa: ANN401
    """Nested lists of an array's numbers, from the state (version, shape, dtype, fortran, bytes)."""
    _, shape, dtype, fortran, raw = made.state[""]
    raw = _as_bytes(raw)
    order = ">" if dtype.state.get("", (0, "<"))[1] == ">" else "<"
    code = _NUMPY_FORMATS[dtype.args[0].lstrip("<>=|")]
    values: list[Any] = [number for (number,) in struct.iter_unpack(order + code, raw)]
    sizes = shape[:0:-1] if not fortran else shape[:-1]
    for size in sizes:
        values = [values[start : start + size] for start in range(0, len(values), size)]
    if fortran and len(shape) > 1:
        return f"<array of shape {tuple(shape)} in Fortran order>"
    return values if shape else values[0]


_PLAIN: dict[str, Callable[[Placeholder], Any]] = {
    "datetime.datetime": _date,
    "numpy.core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "numpy.core.multiarray._reconstruct": _numpy_array,
    "numpy._core.multiarray._reconstruct": _numpy_array,
    "collections.deque": lambda made: list(made.items),
    "collections.OrderedDict": lambda made: dict(made.items),
    "collections.defaultdict": lambda made: dict(made.items),
}


def to_plain(value: Any) -> Any:  # noqa: ANN401
    """Turn what `read_pickle` gave into JSON-like data; unknown objects become their description.

    Raises:
        ValueError: there are more than `MAX_PLAIN_NODES` values.
    """
    return _plain(value, MAX_PLAIN_DEPTH, [MAX_PLAIN_NODES])


def _plain(value: Any, depth: int, budget: list[int]) -> Any:  # noqa: ANN401, PLR0911 - one case a line
    budget[0] -= 1
    if budget[0] < 0:
        message = f"more than {MAX_PLAIN_NODES} values"
        raise ValueError(message)
    if isinstance(value, bool | int | float | str | datetime | None):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Placeholder):
        known = _PLAIN.get(value.name)
        if known is None:
            return repr(value)
        try:
            return _plain(known(value), depth - 1, budget)
        except (KeyError, IndexError, TypeError, AttributeError, struct.error, OverflowError):
            return repr(value)
    if isinstance(value, dict):
        return {str(key): _plain(item, depth - 1, budget) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth - 1, budget) for item in value]
    if isinstance(value, type):
        return repr(value)  # a bare name
    return f"<{len(value)} bytes>" if isinstance(value, bytes | bytearray) else f"<{type(value).__name__}>"
