"""A bounded cache of descriptors: a thousand live runs have more files than a process may open."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol


class FileOwner(Hashable, Protocol):
    """Whose file it is."""

    def close_failed(self) -> None:
        """Closing it told of bytes that could not be written: NFS says so only then."""
        ...


class OpenFiles:
    """Descriptors by owner, least recently used ones closed beyond `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: OrderedDict[FileOwner, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, owner: FileOwner, open_file: Callable[[], int]) -> int:
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
            self.close(next(iter(self._open)))
        return opened

    def known(self, owner: FileOwner) -> int | None:
        """The open descriptor of an owner's file, if there is one."""
        return self._open.get(owner)

    def close(self, owner: FileOwner) -> None:
        """Close the owner's descriptor if there is one; what that tells is the owner's."""
        found = self._open.pop(owner, None)
        if found is not None:
            try:
                os.close(found)
            except OSError:
                owner.close_failed()

    def close_all(self) -> None:
        """Close everything."""
        for owner in list(self._open):
            self.close(owner)
