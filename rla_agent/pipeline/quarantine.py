"""Quarantine of streams with an unreadable opening frame.

Reading an opening frame costs the main thread up to 256 KiB of file, which is asked for at each message of
a live client and four times a second otherwise. So a name that could not be read is tried again only after
RETRY_S, or when a segment came into its folder: that one has an opening frame of its own.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from rla_agent.pipeline.remove_stream import remove_stream
from rla_agent.pipeline.segment_reader import MOST_SEGMENT_BYTES, read_opening, valid_frames
from rla_client.contract.errors import RlaError, UnknownVersionError
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import FRAME_MAGIC
from rla_client.contract.spool.segments import (
    STREAM_NAME,
    check_stream,
    read_at,
    segment_numbers,
    segment_path,
)
from rla_client.contract.spool.writer_liveness import writer_alive

RETRY_S = 4.0  # less than LISTING_S, after which a stream without messages is tried again
_log = logging.getLogger("rla_agent.pipeline.quarantine")


class Quarantine(dict[str, str]):
    """Stream → why it cannot be taken in."""

    def __init__(self, spool: Path) -> None:
        super().__init__()
        self._spool = spool
        self._next: dict[str, tuple[float, int]] = {}  # when it was read, and the folder's mtime then

    def read(self, name: str, now: float) -> Opening | None:
        """The opening of a stream; None when it is not a stream, or cannot be read now.

        A stream that a power cut left without a single record is removed.

        Args:
            name: as a message or the spool has it.
            now: monotonic.
        """
        due, changed = self._next.get(name, (0.0, -1))
        if not STREAM_NAME.match(name) or (now < due and self._changed(name) == changed):
            return None
        folder = self._spool / name
        try:
            opening, _ = read_opening(folder)
        except FileNotFoundError:
            return None
        except (RlaError, OSError) as error:
            if name not in self and holds_nothing(folder):
                _log.warning("stream %s holds nothing: power was cut before its first sync; removed", name)
                with suppress(OSError):
                    remove_stream(folder)
                return None
            if self.get(name) != str(error):
                _log.warning("stream %s is not stored: %s", name, error)
            self[name] = str(error)
            self._next[name] = now + RETRY_S, self._changed(name)
            return None
        self._forget(name)
        return opening

    def forget_gone(self) -> None:
        """Drop streams that somebody removed."""
        for name in [name for name in self if self._changed(name) < 0]:
            self._forget(name)

    def _forget(self, name: str) -> None:
        self.pop(name, None)
        self._next.pop(name, None)

    def _changed(self, name: str) -> int:
        try:
            return os.stat(self._spool / name).st_mtime_ns
        except FileNotFoundError:
            return -1
        except OSError:
            return 0


def holds_nothing(folder: Path) -> bool:
    """Whether no segment holds more than a torn opening frame, and nobody will add to it.

    That is what a power cut before the first sync leaves: nothing, zeros, or the front of a first frame.
    Damaged frames with others behind them are not nothing: they stay, and status names the stream.
    """
    if writer_alive(folder) is not False:
        return False
    try:
        check_stream(folder)
        for number in segment_numbers(folder):
            data = read_at(segment_path(folder, number), 0, MOST_SEGMENT_BYTES)
            if len(data) == MOST_SEGMENT_BYTES or next(valid_frames(data), None) is not None:
                return False
            if data.find(FRAME_MAGIC, 1) >= 0 or (data.strip(b"\0") and not data.startswith(FRAME_MAGIC)):
                return False
    except (OSError, UnknownVersionError):
        return False
    return True
