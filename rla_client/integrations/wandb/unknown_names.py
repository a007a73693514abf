"""Unsupported names of wandb, each of which warns once."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from rla_client.run.current_logger import warn

_warned: set[str] = set()


def tell_unknown(name: str) -> None:
    """Warn, once, that a name does nothing."""
    if name not in _warned:
        _warned.add(name)
        warn(f"wandb.{name} has no meaning here and does nothing")


class Unknown:
    """An unsupported name. A call warns; as a decorator it returns the function unchanged."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Warn, unless the name is private in wandb."""
        if "._" not in self._name:
            tell_unknown(self._name)
        decorates = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType)
        return args[0] if decorates else Unknown(f"{self._name}()")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self._name}.{name}")

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Unknown:  # noqa: PYI034 - Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def __repr__(self) -> str:
        return f"<wandb.{self._name}: no meaning here>"


def unknown_part(module: str, name: str) -> Unknown:
    """An unsupported attribute of a module of wandb.

    Raises:
        AttributeError: the name is a dunder name, which Python itself looks up.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return Unknown(f"{module}.{name}")


class Lenient:
    """A base class for classes of wandb, whose unsupported attributes are `Unknown`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Unknown(f"{type(self).__name__}.{name}")
