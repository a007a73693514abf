"""Reading the opening frames of streams in the spool: which cannot be read, why, and when to try again.

Reading one costs the main thread up to 256 KiB of file, which is asked for at each message of a live
client and four times a second otherwise. So a name is tried again only after RETRY_S, or when a segment
came into its folder: that one has an opening frame of its own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rla_agent.pipeline.reader import holds_nothing, read_opening
from rla_agent.pipeline.removal import remove_stream
from rla_client.contract.errors import RlaError
from rla_client.contract.opening import Opening
from rla_client.contract.segments import STREAM_NAME

RETRY_S = 4.0  # less than spool_watch.LISTING_S, after which a silent one is asked for again

_log = logging.getLogger("rla_agent.pipeline.quarantine")


class Unreadable(Mapping[str, str]):
    """Stream → why it cannot be taken in."""

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._why: dict[str, str] = {}
        self._next: dict[str, tuple[float, int]] = {}  # when, and the folder's mtime that it was read at

    def __getitem__(self, name: str) -> str:
        return self._why[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._why)

    def __len__(self) -> int:
        return len(self._why)

    def read(self, name: str, now: float) -> Opening | None:
        """What a stream says of itself; None when it is not a stream, or cannot be read now.

        A stream that a power cut left without a single record is removed.

        Args:
            name: as a message or the spool has it.
            now: monotonic.
        """
        if not STREAM_NAME.match(name) or self._rests(name, now):
            return None
        folder = self._spool / name
        try:
            opening, _ = read_opening(folder)
        except FileNotFoundError:
            return None
        except (RlaError, OSError) as error:
            if name not in self._why and holds_nothing(folder):
                _log.warning("stream %s holds nothing: power was cut before its first sync; removed", name)
                with suppress(OSError):
                    remove_stream(folder)
                return None
            if self._why.get(name) != str(error):
                _log.warning("stream %s is not stored: %s", name, error)
            self._why[name] = str(error)
            self._next[name] = now + RETRY_S, self._changed(name)
            return None
        self._forget(name)
        return opening

    def forget_gone(self) -> None:
        """Drop streams that somebody removed."""
        for name in [name for name in self._why if self._changed(name) < 0]:
            self._forget(name)

    def _rests(self, name: str, now: float) -> bool:
        """Whether a stream was tried a moment ago and nothing came since."""
        due, changed = self._next.get(name, (0.0, -1))
        return now < due and self._changed(name) == changed

    def _forget(self, name: str) -> None:
        self._why.pop(name, None)
        self._next.pop(name, None)

    def _changed(self, name: str) -> int:
        try:
            return os.stat(self._spool / name).st_mtime_ns
        except FileNotFoundError:
            return -1
        except OSError:
            return 0
