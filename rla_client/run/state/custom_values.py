"""Custom data of a run by key."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from rla_client.contract.errors import ArgumentError, UntrustedCheckpointError
from rla_client.run.current_logger import get_current, warn
from rla_client.run.run import Run
from rla_client.run.state.custom_data import open_own, unopened

CustomDataMode: TypeAlias = Literal["append", "replace"]
# Of ended runs, as long as somebody has the run and may reopen it.
_of_ended: weakref.WeakKeyDictionary[Run, dict[str, Any]] = weakref.WeakKeyDictionary()


class CustomValues:
    """Custom data, perhaps with unopened objects."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._unread: set[str] = set()  # keys of those that hold such objects

    def leave_to(self, ended: Run) -> None:
        """Hand over the data of a run that ends; a reopening gets it by `take_of`."""
        _of_ended[ended] = self.values
        self.take({})

    def take(self, read: dict[str, Any]) -> None:
        """Replace all data with those of an earlier run."""
        self.values = read
        self._unread = {key for key, value in read.items() if unopened(value) is not None}

    def is_unread(self, key: str) -> bool:
        """Whether there is an object under `key` that was not loaded."""
        return key in self._unread

    def take_of(self, ended: Run, read: Callable[[], dict[str, Any]]) -> None:
        """Take over the data of a run that this process has ended; `read` reads its files.

        The agent writes these with a delay: the data of a run that has just ended are in memory.
        """
        kept = _of_ended.get(ended)
        self.take(read() if kept is None else kept)

    def add(
        self, key: str, data: object, dtype: type = list, max_len: int = -1, mode: CustomDataMode = "append"
    ) -> None:
        """See `ExpManager.add_custom_data`."""
        if mode not in get_args(CustomDataMode):
            raise ArgumentError(f"add_custom_data takes mode 'append' or 'replace', got {mode!r}")
        grows = mode == "append" and isinstance(dtype, type) and issubclass(dtype, (list, deque))
        if not grows:
            self.values[key] = data
            self._unread.discard(key)
            return
        held = self.values.get(key)
        if isinstance(held, list) and issubclass(dtype, deque) and max_len > 0:
            held = deque(held, maxlen=max_len)  # archives of RLA are read with lists in place of deques
        elif not isinstance(held, (list, deque)) and issubclass(dtype, deque):
            if max_len < 1:
                raise ArgumentError(f"a deque needs max_len of at least 1, got {max_len}")
            held = deque(maxlen=max_len)
        elif not isinstance(held, (list, deque)):
            held = []
        self.values[key] = held
        held.append(data)

    def get(self, key: str, *, trust: bool = False) -> Any:  # noqa: ANN401
        """See `ExpManager.get_custom_data`."""
        value = self.values.get(key)
        if trust and key in self._unread:
            value = self.values[key] = open_own(value, None)
        left = unopened(value) if key in self._unread else None
        if left is not None:
            raise UntrustedCheckpointError(
                f"custom data {key!r} holds an object that was not loaded: {left.problem}. Loading it runs "
                "code which its file names; pass trust=True if you trust whoever wrote that file"
            )
        return value

    def print(self, key: str, prefix: str = "") -> None:
        """See `ExpManager.print_custom_data`."""
        if key not in self.values:
            raise ArgumentError(f"no custom data under {key!r}; there is: {', '.join(self.values) or 'none'}")
        import numpy as np  # noqa: PLC0415 - not at import of the package

        try:
            mean = float(np.mean(self.values[key]))
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"custom data {key!r} has no mean: {error}") from error
        get_current().record(prefix + key, mean)

    def clear(self, key: str) -> None:
        """See `ExpManager.clear_custom_data`."""
        if self.values.pop(key, None) is None:
            warn(f"key {key} is not in custom_data")
