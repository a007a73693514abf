"""Encoding of numpy arrays as marked tensors.

Arrays and scalars of numpy in lists, tuples and as values of dicts are written as tensors with an attribute
(NUMPY_MARK) for their type: `torch.load(weights_only=True)` reads them without this package, and `as_numpy`
restores them. Scalars of one dtype share storages. Within other objects, where `as_numpy` does not reach,
arrays become `numpy.asarray(<tensor>)`; as keys and in sets, and where torch has no such dtype, they are
pickled by numpy.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from rla_client.checkpoint.torch_names import torch_names

NUMPY_MARK = "_rla_numpy"  # attribute of a tensor that was an array or a scalar of numpy
ARRAY, SCALAR = "array", "scalar"


def as_numpy(content: Any) -> Any:  # noqa: ANN401
    """Loaded content with numpy's arrays and scalars restored in lists, tuples and dicts."""
    return _Unmarking().visit(content)


class _Unmarking:
    """One pass over a content. Dicts and lists are changed in place, so that shared objects stay shared."""

    def __init__(self) -> None:
        self._tensor = torch_names().tensor
        self._seen: dict[int, tuple[Any, Any]] = {}  # by id: what was there, which so stays alive; and is now

    def visit(self, value: Any) -> Any:  # noqa: ANN401
        kind = type(value)
        if kind not in {self._tensor, dict, OrderedDict, list, tuple}:
            return value
        known = self._seen.get(id(value))
        if known is not None:
            return known[1]
        if kind is self._tensor:
            found = value
            if NUMPY_MARK in value.__dict__:
                found = value.cpu().numpy()
                found = found[()] if value.__dict__[NUMPY_MARK] == SCALAR else found
        elif kind is tuple:
            entries = [self.visit(entry) for entry in value]
            same = all(new is old for new, old in zip(entries, value, strict=True))
            found = value if same else tuple(entries)
        else:
            self._seen[id(value)] = value, value
            self._visit_entries(value)
            found = value
        self._seen[id(value)] = value, found
        return found

    def _visit_entries(self, value: Any) -> None:  # noqa: ANN401
        entries = list(enumerate(value) if isinstance(value, list) else value.items())
        for place, entry in entries:
            new = self.visit(entry)
            if new is not entry:
                value[place] = new
        if isinstance(value, OrderedDict) and vars(value):
            self._visit_entries(vars(value))
