"""Bounded cache of output files' descriptors.

A thousand live runs have more files than a process may open.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Protocol


class Reopened(Protocol):
    """An output, as far as its descriptor is concerned."""

    def open_file(self) -> int:
        """Open its file."""

    def close_failed(self) -> None:
        """Note that closing the file reported bytes that could not be written."""


class OpenFiles:
    """Descriptors by output, least recently used ones closed beyond `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: OrderedDict[Reopened, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, output: Reopened) -> int:
        """The open descriptor of an output's file, opened now if there is none.

        Raises:
            ItemGoneError: the item's folder is not there.
            OSError: it cannot be opened.
        """
        descriptor = self._open.get(output)
        if descriptor is not None:
            self._open.move_to_end(output)
            return descriptor
        opened = self._open[output] = output.open_file()
        while len(self._open) > self.limit:
            self.close(next(iter(self._open)))
        return opened

    def known(self, output: Reopened) -> int | None:
        """The open descriptor of an output's file, if there is one."""
        return self._open.get(output)

    def close(self, output: Reopened) -> None:
        """Close an output's descriptor if there is one; the output is told of an error."""
        descriptor = self._open.pop(output, None)
        if descriptor is not None:
            try:
                os.close(descriptor)
            except OSError:
                output.close_failed()

    def close_all(self) -> None:
        """Close everything."""
        for output in list(self._open):
            self.close(output)
