"""Parameters of a launcher as variant.json records them, and put back into a call of it. Pure.

variant.json holds plain data, in garage's encoding: a class is `{"$class": "module.Name"}`, a function
`{"$function": …}`, a member of an enum `{"$enum": "module.Class.NAME"}` (of one of numbers or texts the
number or text), another object its attributes with its class as `$typename`. Nobody can call
these: for functions, classes and objects the launcher's own value stays. Whatever is plain data
in the launcher's call is replaced by what was recorded, also inside lists, tuples and dicts.
"""

from __future__ import annotations

import math
import os
import re
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import ModuleType, SimpleNamespace
from typing import Any

from rla_client.code.secret_values import DESCRIBED, is_hidden
from rla_client.stream.values import plain_hyper_param, text_of

MAX_OBJECTS = 200  # of one call that are described with their attributes; of further ones the class alone
MAX_OBJECT_DEPTH = 6
MAX_ARRAY_ITEMS = 1 << 17  # of all arrays of one call; further ones are shown as their repr
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")
_PLAIN = (bool, int, float, str)
_CLASS, _FUNCTION, _ENUM = "$class", "$function", "$enum"
_MARKS = frozenset([_CLASS, _FUNCTION, _ENUM, DESCRIBED])
_KEPT = (
    bytes, bytearray, complex, os.PathLike, Mapping, list, tuple, AbstractSet, deque, SimpleNamespace,
    Namespace,
)  # fmt: skip


def described(parameters: object) -> Any:  # noqa: ANN401 - a parameter, or a mapping of them
    """As variant.json holds it: plain data without any address in memory."""
    return plain_hyper_param(parameters, _Description())


class _Description:
    """What stands for a class, function, member of an enum or object; for anything else itself."""

    def __init__(self) -> None:
        self._objects = MAX_OBJECTS
        self._items = MAX_ARRAY_ITEMS

    def __call__(self, value: object, depth: int) -> object:  # noqa: PLR0911 - one line a kind
        if value is None or isinstance(value, int | float | str):
            return value
        if isinstance(value, type):
            return {_CLASS: _full_name(value, value.__qualname__)}
        if isinstance(value, Enum):
            return {_ENUM: _full_name(type(value), f"{type(value).__qualname__}.{value.name}")}
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if callable(value) and isinstance(name, str):
            return {_FUNCTION: _full_name(value, name)}
        if isinstance(value, partial):
            kept = {"func": value.func, "args": value.args, "keywords": value.keywords}
            return {DESCRIBED: "functools.partial", **kept}
        if isinstance(value, _KEPT) or type(value).__module__.startswith("omegaconf"):
            return value
        if hasattr(value, "dtype") and hasattr(value, "item"):
            return self._array(value)
        if hasattr(value, "__index__") or (hasattr(value, "__float__") and hasattr(value, "__add__")):
            return value
        return self._object(value, depth)

    def _array(self, value: object) -> object:
        shape = tuple(getattr(value, "shape", ()))
        self._items -= math.prod(shape) if all(isinstance(size, int) for size in shape) else 0
        return value if self._items >= 0 else text_of(value, repr)

    def _object(self, value: object, depth: int) -> object:
        attributes, text = _attributes(value), text_of(value, repr)
        if not attributes and not _ADDRESS.search(text):
            return text
        name = {DESCRIBED: _full_name(type(value), type(value).__qualname__)}
        self._objects -= 1
        return name if self._objects < 0 or depth > MAX_OBJECT_DEPTH else {**attributes, **name}


def _full_name(value: object, name: str) -> str:
    module = getattr(value, "__module__", None)
    return f"{module if isinstance(module, str) else type(value).__module__}.{name}"


def _attributes(value: object) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if name[:2] != "__" and hasattr(value, name)}
    own = getattr(value, "__dict__", None)
    return found | own if isinstance(own, dict) and type(value) is not ModuleType else found


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def recorded_value(own: object, recorded: object) -> object:  # noqa: PLR0911 - one line a kind
    """`recorded` in the manner of `own`, the launcher's value; `own` where it is no plain data."""
    if isinstance(recorded, dict) and not recorded.keys().isdisjoint(_MARKS):
        return _member(own, recorded)
    if own is None or type(own) in _PLAIN:
        return recorded
    if described(own) == recorded:
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


def _member(own: Any, recorded: dict[str, Any]) -> object:  # noqa: ANN401
    """The recorded member of the enum that `own` is of; else `own`."""
    kind = type(own)
    for member in kind if isinstance(own, Enum) else ():
        if described(member) == recorded:
            return member
    return own


def _sequence(own: Any, recorded: list[Any]) -> object:  # noqa: ANN401 - list or tuple
    if len(own) == len(recorded):
        return type(own)(recorded_value(mine, then) for mine, then in zip(own, recorded, strict=True))
    return type(own)(recorded) if all(_is_plain(value) for value in own) else own


def _is_plain(value: object) -> bool:
    if value is None or type(value) in _PLAIN:
        return True
    if isinstance(value, list | tuple):
        return all(_is_plain(one) for one in value)
    return isinstance(value, dict) and all(_is_plain(one) for one in value.values())


def _numpy(own: object, recorded: object) -> object:
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
    """Whether a parameter shows otherwise than recorded; addresses of objects and hidden secrets aside.

    Earlier releases recorded the repr of functions and objects.
    """
    then = _comparable(recorded)
    return not (_same(_comparable(described(own)), then) or _same(_comparable(plain_hyper_param(own)), then))


def _same(own: object, recorded: object) -> bool:
    if is_hidden(recorded):
        return True
    if isinstance(own, dict) and isinstance(recorded, dict):
        return own.keys() == recorded.keys() and all(_same(own[key], recorded[key]) for key in own)
    if isinstance(own, list) and isinstance(recorded, list):
        return len(own) == len(recorded) and all(map(_same, own, recorded))
    return bool(own == recorded)


def fits(own: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a call with parameters `own` becomes the recorded one by `recorded_value`."""
    return own.keys() == recorded.keys() and not any(
        differs(recorded_value(value, recorded[key]), recorded[key]) for key, value in own.items()
    )


def _comparable(value: object) -> object:
    if isinstance(value, str):
        return _ADDRESS.sub("0x", value)
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    if isinstance(value, dict):
        return {key: _comparable(one) for key, one in value.items()}
    return "nan" if value != value else value  # noqa: PLR0124 - NaN is no number, and equal to none
