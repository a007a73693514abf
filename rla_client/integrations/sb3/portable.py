"""Attributes of an object that can be part of a checkpoint."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rla_client.checkpoint.pickling import capture

_LOG = logging.getLogger("rla_client")


def portable(values: Mapping[str, Any], foreign: Callable[[object], bool] | None = None) -> dict[str, Any]:
    """The values that can be pickled: no lambdas, local classes or open files.

    Args:
        values: by name.
        foreign: whether an object belongs to something else, so that it must not be copied; values that
            refer to such objects are left out.
    """
    found = {}
    for name, value in values.items():
        try:
            if foreign is not None:
                _Search(foreign).dump(value)
            capture(value)
        except Exception as error:  # noqa: BLE001 - objects of the user, such as windows or sockets
            _LOG.debug("%s is not part of the checkpoint: %s", name, error)
        else:
            found[name] = value
    return found


class _Nowhere:
    def write(self, data: bytes) -> int:
        return len(data)


class _Search(pickle.Pickler):
    """A pickler that raises at the first foreign object; it writes nothing and copies no arrays."""

    def __init__(self, foreign: Callable[[object], bool]) -> None:
        super().__init__(_Nowhere(), protocol=5, buffer_callback=lambda _: None)
        self._foreign = foreign

    def reducer_override(self, obj: object) -> Any:
        if self._foreign(obj):
            raise pickle.PicklingError(f"it holds a {type(obj).__name__}")
        return (int, ()) if isinstance(obj, torch.Tensor) else NotImplemented
