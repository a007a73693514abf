"""Conversion of hyper-parameters into plain data.

As for the values of rows, no library is imported, and nothing is raised.
"""

from __future__ import annotations

import enum
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

from rla_client.contract.process.loaded_modules import loaded
from rla_client.stream.values import MAX_DEPTH, element_count, number_or_text, on_host, plain_of, text_of

StandIn: TypeAlias = Callable[[Any, int], Any]
PlainParam: TypeAlias = "bool | int | float | str | list[Any] | dict[str, Any] | None"
MAX_PARAM_ITEMS = 65536  # of an array among the hyper-parameters; a larger one is shown as its repr
_DEVICE = ("torch", "device")  # as the command line had it: cuda:0
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def plain_hyper_param(value: object, stand_in: StandIn | None = None) -> PlainParam:
    """Convert hyper-parameters, nested in any way, into plain data for YAML and JSON.

    Mappings, dataclasses, named tuples, attrs objects, Namespaces and OmegaConf become dicts with
    text keys (`key_names`), lists, tuples, deques and sets lists (sets sorted), numpy and torch values
    numbers or lists, paths text, enums their number or text if they are one and else their name,
    functions their name, devices of torch theirs (`cuda:0`), other objects their repr without addresses, as
    runs are grouped by it. An object that contains itself is shown as `<cycle>`.

    Args:
        value: a parameter, or a mapping of them.
        stand_in: called with each value and its depth; returns the value to convert instead.
    """
    try:
        return _param(value, (), stand_in)
    except Exception:  # noqa: BLE001 - foreign code may raise anything; parameters are never fatal
        return text_of(value, repr)


def name_of(value: object, show: Callable[[Any], str] = str) -> str:
    """`text_of` with no address in memory: a function is `module.name`."""
    return text_of(value, lambda one: _without_address(one, show(one)))


def _without_address(value: object, text: str) -> str:
    bare = text if isinstance(value, str) else _ADDRESS.sub("", text)
    name = None if bare == text else getattr(value, "__qualname__", None)
    return full_name(value, name) if isinstance(name, str) else bare


def full_name(value: object, name: str) -> str:
    """`module.name` of a function, class or object."""
    module = getattr(value, "__module__", None)
    return f"{module if isinstance(module, str) else type(value).__module__}.{name}"


def key_names(keys: Iterable[object]) -> list[str]:
    """Unique texts for the keys of a dict: names of enum members, else `name_of`."""
    counts: dict[str, int] = {}
    for key in keys:
        stem = name = text_of(key.name) if isinstance(key, enum.Enum) else name_of(key)
        while name in counts:
            counts[stem] += 1
            name = f"{stem} #{counts[stem]}"
        counts[name] = 1
    return list(counts)


def _param(value: object, path: tuple[int, ...], stand_in: StandIn | None) -> PlainParam:  # noqa: PLR0911 - one line a kind
    below = (*path, id(value))
    if stand_in is not None and id(value) not in path:
        value = stand_in(value, len(path))
    if isinstance(value, enum.Enum) and not isinstance(value, int | float | str):
        return text_of(value.name)
    if value is None or isinstance(value, int | float | str):
        return plain_of(value, ())
    if isinstance(value, os.PathLike):
        return text_of(os.fspath(value))
    if isinstance(value, type) or len(path) >= MAX_DEPTH:
        return text_of(value, repr)
    if below[-1] in path:
        return "<cycle>"
    pairs = _pairs_of(value)
    if pairs is not None:
        names = key_names(key for key, _item in pairs)
        items = (_param_item(item, below, stand_in) for _key, item in pairs)
        return dict(zip(names, items, strict=True))
    if isinstance(value, AbstractSet):
        plain = [(item, _param_item(item, below, stand_in)) for item in value]
        return [shown for _item, shown in sorted(plain, key=_sort_key)]
    if isinstance(value, list | tuple) or type(value).__name__ in {"deque", "ListConfig"}:
        return [_param_item(item, below, stand_in) for item in value]  # type: ignore[attr-defined]
    return _param_leaf(value)


def _param_item(value: object, path: tuple[int, ...], stand_in: StandIn | None) -> PlainParam:
    try:
        return _param(value, path, stand_in)
    except Exception:  # noqa: BLE001 - one bad parameter must not turn the others into text
        return text_of(value, repr)


def _param_leaf(value: object) -> PlainParam:
    if getattr(value, "size", 0) is not None and hasattr(value, "dtype"):
        array = on_host(value)
        if hasattr(array, "item") and element_count(array) > MAX_PARAM_ITEMS:
            return text_of(value, repr)
        return plain_of(value, ())
    if hasattr(value, "__index__") or (hasattr(value, "__float__") and hasattr(value, "__add__")):
        return number_or_text(value)
    return name_of(value, str if (type(value).__module__, type(value).__name__) == _DEVICE else repr)


def _sort_key(pair: tuple[object, PlainParam]) -> tuple[str, float, str]:
    item, shown = pair
    if isinstance(item, int | float):
        return type(item).__name__, float(item), ""
    return type(item).__name__, 0.0, text_of(shown, repr)


def _pairs_of(value: object) -> list[tuple[object, object]] | None:  # noqa: PLR0911 - one line a kind
    """Names and values of any container of named parameters; None for anything else."""
    config = _omegaconf(value)
    if config is not None:
        return list(config.items()) if isinstance(config, dict) else None
    if isinstance(value, Mapping):
        return list(value.items())
    if is_dataclass(value):
        return [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    attrs = getattr(type(value), "__attrs_attrs__", None)
    if attrs is not None:
        return [(field.name, getattr(value, field.name, None)) for field in attrs]
    if isinstance(value, SimpleNamespace) or _is_namespace(type(value)):
        return list(vars(value).items())
    return None


def _is_namespace(kind: type) -> bool:
    return any(base.__module__ == "argparse" and base.__name__ == "Namespace" for base in kind.__mro__)


def _omegaconf(value: object) -> object:
    """Content of an OmegaConf object, see `resolved`; None for anything else."""
    module = loaded("omegaconf")
    return resolved(value) if module is not None and module.OmegaConf.is_config(value) else None


def resolved(config: Any) -> Any:  # noqa: ANN401 - an OmegaConf, of a package that need not be installed
    """The content of an OmegaConf as plain containers; unresolvable values stay as their text."""
    conf = sys.modules["omegaconf"].OmegaConf
    try:
        return conf.to_container(config, resolve=True)
    except Exception:  # noqa: BLE001 - a missing key, or whatever a user's resolver raises
        found = conf.to_container(config, resolve=False)
    for key in (
        list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    ):
        with suppress(Exception):  # of this one, which keeps its text
            value = config[key]
            found[key] = resolved(value) if conf.is_config(value) else value
    return found
