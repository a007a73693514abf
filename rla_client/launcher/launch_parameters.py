"""Parameters of a launch as plain data, in garage's encoding.

A class is `{"$class": "module.Name"}`, a function `{"$function": …}`, a member of an enum `{"$enum":
"module.Class.NAME"}` (a member that is a number or text is that number or text), another object its
attributes with its class as `$typename`.

When the call is repeated, functions, classes and objects are the launcher's own values. Plain data in the
launcher's call is replaced by the recorded values, also inside lists, tuples and dicts. Keys of dicts are
recorded as texts (stream/values.py, `key_names`) and restored from the launcher's own keys.
"""

from __future__ import annotations

import math
import os
import re
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from copy import copy
from enum import Enum
from functools import partial
from pathlib import PurePath
from types import ModuleType, SimpleNamespace
from typing import Any

from rla_client.code.restored_secrets import DESCRIBED, is_hidden
from rla_client.contract.process.loaded_modules import loaded
from rla_client.stream.param_values import full_name, key_names, name_of, plain_hyper_param
from rla_client.stream.values import text_of

MAX_OBJECTS = 200  # of one call that are described with their attributes; further ones only by class
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
    """A parameter as in variant.json: plain data without addresses in memory."""
    return plain_hyper_param(parameters, _Description())


class _Description:
    """Description of a class, function, member of an enum or object; other values are unchanged."""

    def __init__(self) -> None:
        self._objects = MAX_OBJECTS
        self._items = MAX_ARRAY_ITEMS

    def __call__(self, value: object, depth: int) -> object:  # noqa: PLR0911 - one line a kind
        if value is None or isinstance(value, int | float | str):
            return value
        if isinstance(value, type):
            return {_CLASS: full_name(value, value.__qualname__)}
        if isinstance(value, Enum):
            return {_ENUM: full_name(type(value), f"{type(value).__qualname__}.{value.name}")}
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        if callable(value) and isinstance(name, str):
            return {_FUNCTION: full_name(value, name)}
        if isinstance(value, partial):
            kept = {"func": value.func, "args": value.args, "keywords": value.keywords}
            return {DESCRIBED: "functools.partial", **kept}
        if isinstance(value, _KEPT) or type(value).__module__.startswith("omegaconf"):
            return value
        if hasattr(value, "dtype") and hasattr(value, "item"):
            return self._array(value, depth)
        if hasattr(value, "__index__") or (hasattr(value, "__float__") and hasattr(value, "__add__")):
            return value
        return self._object(value, depth)

    def _array(self, value: object, depth: int) -> object:
        array: Any = value
        shape = tuple(getattr(array, "shape", ()))
        self._items -= math.prod(shape) if all(isinstance(size, int) for size in shape) else 0
        if self._items < 0:
            return name_of(array, repr)
        if not getattr(array.dtype, "hasobject", False):
            return array
        return array.tolist() if shape else self(array.item(), depth)

    def _object(self, value: object, depth: int) -> object:
        attributes, text = _attributes(value), text_of(value, repr)
        if not attributes and not _ADDRESS.search(text):
            return text
        name = {DESCRIBED: full_name(type(value), type(value).__qualname__)}
        self._objects -= 1
        return name if self._objects < 0 or depth > MAX_OBJECT_DEPTH else {**attributes, **name}


def _attributes(value: object) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in _names(kind.__dict__.get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if name[:2] != "__" and hasattr(value, name)}
    own = getattr(value, "__dict__", None)
    return found | own if isinstance(own, dict) and type(value) is not ModuleType else found


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def recorded_value(own: object, recorded: object) -> object:  # noqa: PLR0911 - one line a kind
    """`recorded` with the type of `own`, the launcher's value; `own` if it is not plain data."""
    if isinstance(recorded, dict) and not recorded.keys().isdisjoint(_MARKS):
        return _member(own, recorded)
    if recorded is None or own is None or type(own) in _PLAIN:
        return recorded
    if described(own) == recorded:
        return own
    if type(own) in {dict, OrderedDict, defaultdict} and isinstance(recorded, dict):
        return _dict(own, recorded)
    if type(own) in {list, tuple} and isinstance(recorded, list):
        return _sequence(own, recorded)
    if isinstance(own, PurePath) and isinstance(recorded, str):
        return type(own)(recorded)
    if isinstance(own, int | float | str) and type(recorded) in _PLAIN:
        return _of_kind(type(own), recorded)
    return _numpy(own, recorded)


def _of_kind(kind: Any, recorded: object) -> object:  # noqa: ANN401
    """`recorded` as a number, text or member of an enum of this class; unchanged if that fails."""
    try:
        value = kind(recorded)
    except Exception:  # noqa: BLE001 - no member, or a class of the user's own
        return recorded
    return recorded if differs(value, recorded) else value


def _dict(own: Any, recorded: dict[str, Any]) -> object:  # noqa: ANN401 - a dict
    """The recorded items with the keys and order of `own`; `own` if an item cannot be restored."""
    keys = dict(zip(key_names(own), own, strict=True))
    found = {key: recorded_value(own[key], recorded[name]) for name, key in keys.items() if name in recorded}
    kinds = {type(key) for key in own}
    for name, value in recorded.items():
        if name in keys:
            continue
        if not _is_plain(value):
            return own
        try:
            found[_key(name, kinds)] = value
        except LookupError:
            return own
    result = copy(own)
    result.clear()
    result.update(found)
    return result


def _key(name: str, kinds: set[Any]) -> object:
    """Original of a recorded key among keys of these classes.

    Raises:
        LookupError: the class is ambiguous.
    """
    kind: Any = next(iter(kinds)) if len(kinds) == 1 else str
    if issubclass(kind, Enum):
        return kind[name]
    if not kinds <= set(_PLAIN):
        raise LookupError(name)
    with suppress(ValueError):
        return kind(name) if kind in {int, float} else name
    return name


def _member(own: Any, recorded: dict[str, Any]) -> object:  # noqa: ANN401
    """The recorded member of the enum of `own`; else `own`."""
    kind = type(own)
    for member in kind if isinstance(own, Enum) else ():
        if described(member) == recorded:
            return member
    return own


def _sequence(own: Any, recorded: list[Any]) -> object:  # noqa: ANN401 - list or tuple
    if len(own) == len(recorded):
        return type(own)(recorded_value(mine, then) for mine, then in zip(own, recorded, strict=True))
    return type(own)(recorded) if all(map(_is_plain, (*own, *recorded))) else own


def _is_plain(value: object) -> bool:
    if value is None or type(value) in _PLAIN:
        return True
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, dict) and value.keys().isdisjoint(_MARKS) and all(map(_is_plain, value.values()))


def _numpy(own: object, recorded: object) -> object:
    numpy = loaded("numpy")
    if numpy is None or not isinstance(own, numpy.ndarray | numpy.generic) or own.dtype.kind not in "biuf":
        return own
    try:
        array = numpy.asarray(recorded, dtype=own.dtype)
        array = array.reshape(own.shape) if array.size == own.size else array
    except (ValueError, TypeError, OverflowError):  # a large array is only shown
        return own
    return array if isinstance(own, numpy.ndarray) else array[()]


def differs(own: object, recorded: object) -> bool:
    """Whether a parameter differs from the record, apart from addresses and hidden secrets.

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
    return "nan" if value != value else value  # noqa: PLR0124 - NaN is not a number, and equal to none
