"""Discovery of stream folders in a spool.

The folder is listed only when its mtime changed or LISTING_S have passed.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from rla_client.contract.spool.segments import stream_names

LISTING_S = 5.0  # the folder is listed so often even when its mtime stays
CALM_S = 1.0  # an mtime is as coarse as the clock tick: two changes may have the same one


class SpoolWatch:
    """The names in one spool."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._next_listing = 0.0
        self._listed: int | None = None  # mtime of the folder when all its streams were known

    def names(self, now: float) -> list[str]:
        """Streams in the spool, oldest first; none when nothing came or went since the last call.

        Args:
            now: monotonic.
        """
        with suppress(OSError):
            changed = os.stat(self._spool).st_mtime_ns
            if changed == self._listed and now < self._next_listing:
                return []
            calm = time.time() - changed / 1e9 > CALM_S
            self._listed = changed if calm else None
            self._next_listing = now + LISTING_S
            return stream_names(self._spool, links=True)
        return []

    def look_again(self) -> None:
        """List the folder at the next call, since a stream in it could not be opened."""
        self._listed = None
