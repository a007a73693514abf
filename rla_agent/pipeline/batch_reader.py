"""Reader of one stream's segments, a batch of records at a time."""

from __future__ import annotations

import os
from pathlib import Path

from rla_agent.model.frame_decoder import parse
from rla_agent.model.records import Batch, Position
from rla_client.contract.errors import UnknownVersionError
from rla_client.contract.spool.protocol import FRAME_HEADER_BYTES, MAX_FRAME_BYTES
from rla_client.contract.spool.segments import read_at, segment_numbers, segment_path, segment_size

READ_BYTES = 256 << 10  # some thousand rows: the unit of fairness between streams


class BatchReader:
    """Reads the segments of one stream from any position; the caller keeps the position."""

    def __init__(self, folder: Path) -> None:
        """Args: folder: of the stream, in the spool."""
        #: Of the stream. Never written again.
        self._folder = folder
        #: Why the last read of the spool failed; empty when it did not. `read`.
        self.unread = ""
        #: Why a frame cannot be read by this release; empty when each can. `parse`, `forget_unknown`.
        self.unknown = ""
        #: Segment that `ends_at` looked at last: its number, its path, the path of the one behind it.
        #: `ends_at`.
        self._looked_at = 0, "", ""

    def read(self, number: int, offset: int, *, writer_gone: bool) -> tuple[Batch | None, bool]:
        """Batch at a position (None at the end of the segment), with whether more may follow.

        Where the segment cannot be read, `unread` says why, and nothing follows until a later call succeeds.

        Args:
            number: of the segment.
            offset: in it.
            writer_gone: no bytes will follow those that are there.
        """
        batch, more = None, False
        try:
            batch, more = self._read_segment(number, offset, writer_gone=writer_gone)
        except FileNotFoundError:
            self.unread = f"spool folder {self._folder} is missing; retrying"
        except OSError as error:
            self.unread = f"cannot read segment {number}, retrying: {error}; its rows stay in the spool"
        else:
            self.unread = ""
        return batch, more

    def _read_segment(self, number: int, offset: int, *, writer_gone: bool) -> tuple[Batch | None, bool]:
        sealed = segment_size(self._folder, number + 1) is not None
        final = sealed or writer_gone
        limit = READ_BYTES
        path = segment_path(self._folder, number)
        try:
            data = read_at(path, offset, limit)
            if not data:
                return None, sealed
            batch = self._parse(data, number, offset, final=final and len(data) < limit)
            if batch.end == batch.start and len(data) == limit:
                limit = MAX_FRAME_BYTES + FRAME_HEADER_BYTES + READ_BYTES
                data = read_at(path, offset, limit)
                batch = self._parse(data, number, offset, final=final and len(data) < limit)
        except FileNotFoundError:
            if segment_size(self._folder, number) is not None:  # the spool is back
                raise
            return None, max(segment_numbers(self._folder), default=0) > number  # others may be gone, too
        if batch.end == batch.start:
            return None, False
        return batch, True

    def _parse(self, data: bytes, number: int, offset: int, *, final: bool) -> Batch:
        """Records of some bytes; none, and `unknown` says why, where only a later release can read them."""
        try:
            return parse(data, number, offset, final=final)
        except UnknownVersionError as error:
            self.unknown = f"{error}; it is kept for a newer agent"
            return Batch(number, offset, offset, [])

    def forget_unknown(self) -> None:
        """Drop what cannot be read."""
        self.unknown = ""

    def ends_at(self, position: Position) -> bool:
        """Whether the segment of a position ends there now: one stat, for the many idle streams."""
        number, offset = position
        if self._looked_at[0] != number:
            following = os.fspath(segment_path(self._folder, number + 1))
            self._looked_at = number, os.fspath(segment_path(self._folder, number)), following
        try:
            return os.stat(self._looked_at[1]).st_size == offset
        except OSError:
            return False

    def has_next(self) -> bool:
        """Whether there is a segment behind the one that `ends_at` looked at last."""
        return os.access(self._looked_at[2], os.F_OK)

    def nothing_behind(self, position: Position) -> bool:
        """Whether no byte is behind a position; False also without its folder."""
        number, offset = position
        try:
            if segment_size(self._folder, number + 1) is not None:
                return False
            if (size := segment_size(self._folder, number)) is not None:
                return bool(size <= offset)
            return max(segment_numbers(self._folder), default=0) <= number  # deleted, perhaps with others
        except OSError:
            return False  # what cannot be looked at may hold rows
