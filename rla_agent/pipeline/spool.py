"""What lies in a spool: its streams, their opening frames, and batches of records at any position.

Reading an opening frame costs the main thread up to 256 KiB of file, which is asked for at each message of a
live client and four times a second otherwise. So a name that could not be read is tried again only after
RETRY_S, or when a segment came into its folder: that one has an opening frame of its own (`Unreadable`).
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from rla_agent.ingest import Batch, Content, Job, OpeningFrame, decode, parse
from rla_client.contract.errors import RemoteProtocolError, RlaError, SpoolError, UnknownVersionError
from rla_client.contract.files import TEMP_PREFIX, fsync_folder
from rla_client.contract.jobs import CHECKPOINT_KIND
from rla_client.contract.opening import Opening
from rla_client.contract.protocol import (
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    MAX_FRAME_BYTES,
    SEGMENT_MAX_BYTES,
    Frame,
    find_frame,
    frame_at,
)
from rla_client.contract.segments import (
    STREAM_NAME,
    check_stream,
    read_at,
    segment_numbers,
    segment_path,
    segment_size,
    stream_names,
    writer_alive,
)

LISTING_S = 5.0  # the folder is listed so often even when its mtime stays
CALM_S = 1.0  # an mtime is as coarse as the clock tick: two changes may bear the same one
READ_BYTES = 256 << 10  # some thousand rows: the unit of fairness between streams
MOST_SEGMENT_BYTES = SEGMENT_MAX_BYTES + MAX_FRAME_BYTES + FRAME_HEADER_BYTES  # one frame may end beyond
RETRY_S = 4.0  # less than LISTING_S, after which a silent one is asked for again
GONE_PREFIX = f"{TEMP_PREFIX}gone-"  # streams on their way out
_log = logging.getLogger("rla_agent.pipeline.spool")


class SegmentReader:
    """Reads the segments of one stream.

    Attributes:
        unknown: why a frame cannot be read by this release, empty while there was none.
        fault: why the last read failed (an error of the disk, no descriptor left); empty when it did not.
    """

    def __init__(self, folder: Path) -> None:
        self.unknown = ""
        self.fault = ""
        self._folder = folder

    def read(self, number: int, offset: int, *, ended: bool) -> tuple[Batch | None, bool]:
        """A batch at a position, or None at the end of the segment; and whether more may follow.

        Where the segment cannot be read, `fault` says why, and nothing follows until a later call succeeds.

        Args:
            number: segment.
            offset: in it.
            ended: no bytes will follow those that are there.
        """
        try:
            found = self._read(number, offset, ended=ended)
        except FileNotFoundError:
            self.fault = f"its folder {self._folder} is away, which says nothing; tried again all the time"
            return None, False
        except OSError as error:
            self.fault = f"segment {number} cannot be read, tried again: {error}; its rows stay in the spool"
            return None, False
        self.fault = ""
        return found

    def _read(self, number: int, offset: int, *, ended: bool) -> tuple[Batch | None, bool]:
        sealed = segment_size(self._folder, number + 1) is not None
        final = sealed or ended
        limit = READ_BYTES
        path = segment_path(self._folder, number)
        try:
            data = read_at(path, offset, limit)
            if not data:
                return None, sealed
            batch = self.parse(data, number, offset, final=final and len(data) < limit)
            if batch.end == batch.start and len(data) == limit:
                limit = MAX_FRAME_BYTES + FRAME_HEADER_BYTES + READ_BYTES
                data = read_at(path, offset, limit)
                batch = self.parse(data, number, offset, final=final and len(data) < limit)
        except FileNotFoundError:
            if segment_size(self._folder, number) is not None:  # the spool was renamed, and is back
                raise
            return None, max(segment_numbers(self._folder), default=0) > number  # others may be gone, too
        if batch.end == batch.start:
            return None, False
        return batch, True

    def parse(self, data: bytes, number: int, offset: int, *, final: bool) -> Batch:
        """Records of some bytes; none, and `unknown` says why, where only a later release can read them."""
        try:
            return parse(data, number, offset, final=final)
        except UnknownVersionError as error:
            self.unknown = f"{error}; it is kept for a newer agent"
            return Batch(number, offset, offset, [])


def cut_at_checkpoints(batch: Batch) -> list[Batch]:
    """Pieces of a batch that each end at a checkpoint's frame or at the batch's end."""
    if batch.only_rows:
        return [batch]
    ends = [
        index + 1
        for index, record in enumerate(batch.records)
        if type(record.content) is Job and record.content.kind == CHECKPOINT_KIND
    ]
    if not ends or ends == [len(batch.records)]:
        return [batch]
    pieces: list[Batch] = []
    begin, start = 0, batch.start
    for stop in [*ends, len(batch.records)]:
        records = batch.records[begin:stop]
        end = batch.end if stop == len(batch.records) else records[-1].end
        if records or end > start:
            pieces.append(Batch(batch.number, start, end, records))
        begin, start = stop, end
    pieces[-1].damaged = batch.damaged
    return pieces


def clipped(batch: Batch, end: int) -> Batch:
    """The part of a batch up to an offset that ends a record."""
    records = [record for record in batch.records if record.end <= end]
    return Batch(batch.number, batch.start, end, records, 0, batch.only_rows)


def read_opening(folder: Path) -> tuple[Opening, int]:
    """The opening frame of the oldest segment that has one, and the oldest segment's number.

    Raises:
        SpoolError: no segment has a readable opening frame, or the folder is somebody else's.
        UnknownVersionError: it is of a later release.
        OSError: a segment cannot be read.
    """
    check_stream(folder)
    numbers = segment_numbers(folder)
    why = ""
    for number in numbers:
        try:
            content = _first_content(segment_path(folder, number))
            if isinstance(content, OpeningFrame):
                return Opening.from_fields(content.fields), numbers[0]
        except UnknownVersionError:
            raise
        except RemoteProtocolError as error:
            why = why or f": {error}"
    raise SpoolError(f"{folder} has no readable opening frame{why}")


def _first_content(path: Path) -> Content | None:
    """What the first whole frame of a segment says: every segment begins with its opening frame."""
    for size in (READ_BYTES, MAX_FRAME_BYTES + FRAME_HEADER_BYTES):
        data = read_at(path, 0, size)
        frame = next(valid_frames(data), None)
        if frame is not None:
            return decode(frame.kind, frame.payload)
        if len(data) < size:
            break
    return None


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


def valid_frames(data: bytes) -> Iterator[Frame]:
    """Frames of a segment, those after damage too.

    Raises:
        UnknownVersionError: one is of a later release.
    """
    at = 0
    while at < len(data):
        found = frame_at(data, at)
        if isinstance(found, Frame):
            yield found
            at = found.end
        else:
            at = find_frame(data, at + 1)


def remove_stream(folder: Path) -> None:
    """Delete a stream that was taken in to its end.

    It goes from sight in one step: half of a stream would be taken for a whole one.

    Raises:
        OSError: it is still there.
    """
    gone = folder.with_name(f"{GONE_PREFIX}{folder.name}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
        fsync_folder(folder.parent)
    shutil.rmtree(gone, ignore_errors=True)


def sweep_half_made(spool: Path, older_than_s: float = 60.0) -> None:
    """Remove what a client was killed in the middle of making, or an agent of removing."""
    now = time.time()
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            old = entry.name.startswith(TEMP_PREFIX) and now - entry.stat().st_mtime > older_than_s
            if old or entry.name.startswith(GONE_PREFIX):
                shutil.rmtree(entry.path, ignore_errors=True)


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
        """List the folder at the next call: a stream in it could not be taken."""
        self._listed = None


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
