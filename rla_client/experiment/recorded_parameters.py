"""Recorded parameters put back into a call of the launcher. Pure.

variant.json holds plain data. A function, class, partial or other object is only shown there, by
its repr, which nobody can call: for those the launcher's own value stays. Whatever is plain data
in the launcher's call is replaced by what was recorded, also inside lists, tuples and dicts.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from rla_client.values import plain_hyper_param

_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_PLAIN = (bool, int, float, str)


def recorded_value(own: Any, recorded: Any) -> Any:  # noqa: ANN401 - any parameter
    """`recorded` in the manner of `own`, the launcher's value; `own` where it is no plain data."""
    if own is None or type(own) in _PLAIN:
        return recorded
    if plain_hyper_param(own) == recorded:
        return own
    if type(own) is dict and isinstance(recorded, dict):
        names = {str(key): key for key in own}
        return {
            names.get(key, key): recorded_value(own[names[key]], value) if key in names else value
            for key, value in recorded.items()
        }
    if type(own) in {list, tuple} and isinstance(recorded, list):
        return _sequence(own, recorded)
    if isinstance(own, PurePath) and isinstance(recorded, str):
        return type(own)(recorded)
    return _numpy(own, recorded)


def _sequence(own: Any, recorded: list[Any]) -> Any:  # noqa: ANN401 - list or tuple
    if len(own) == len(recorded):
        return type(own)(recorded_value(mine, then) for mine, then in zip(own, recorded, strict=True))
    return type(own)(recorded) if all(_is_plain(value) for value in own) else own


def _is_plain(value: object) -> bool:
    if value is None or type(value) in _PLAIN:
        return True
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return isinstance(value, dict) and all(_is_plain(one) for one in value.values())


def _numpy(own: Any, recorded: Any) -> Any:  # noqa: ANN401
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(own, numpy.ndarray | numpy.generic) or own.dtype.kind not in "biuf":
        return own
    try:
        array = numpy.asarray(recorded, dtype=own.dtype)
        array = array.reshape(own.shape) if array.size == own.size else array
    except (ValueError, TypeError, OverflowError):  # a large array is only shown
        return own
    return array if isinstance(own, numpy.ndarray) else array[()]


def differs(own: object, recorded: object) -> bool:
    """Whether a parameter shows otherwise than recorded; addresses of objects aside."""
    return bool(_without_addresses(plain_hyper_param(own)) != _without_addresses(recorded))


def fits(own: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a call with parameters `own` becomes the recorded one by `recorded_value`."""
    return own.keys() == recorded.keys() and not any(
        differs(recorded_value(value, recorded[key]), recorded[key]) for key, value in own.items()
    )


def _without_addresses(value: Any) -> Any:  # noqa: ANN401 - plain data
    if isinstance(value, str):
        return _ADDRESS.sub("0x", value)
    if isinstance(value, list):
        return [_without_addresses(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_addresses(one) for key, one in value.items()}
    return "nan" if value != value else value  # noqa: PLR0124 - NaN is no number, and equal to none
