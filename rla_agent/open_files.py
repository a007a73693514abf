"""A bounded cache of descriptors: a thousand live runs have more files than a process may open."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress


class OpenFiles:
    """Descriptors by owner, least recently used ones closed beyond `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: OrderedDict[Hashable, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, owner: Hashable, open_file: Callable[[], int]) -> int:
        """The open descriptor of an owner's file, opened now if there is none.

        Args:
            owner: whose file it is.
            open_file: opens it.

        Raises:
            OSError: it cannot be opened.
        """
        found = self._open.get(owner)
        if found is not None:
            self._open.move_to_end(owner)
            return found
        opened = open_file()
        self._open[owner] = opened
        while len(self._open) > self.limit:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return opened

    def close(self, owner: Hashable) -> None:
        """Close the owner's descriptor if there is one."""
        found = self._open.pop(owner, None)
        if found is not None:
            with suppress(OSError):
                os.close(found)

    def close_all(self) -> None:
        """Close everything."""
        for owner in list(self._open):
            self.close(owner)
