"""Reader of the frames of a stream's segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rla_agent.model.frame_decoder import decode
from rla_agent.model.records import OpeningFrame, RecordContent
from rla_client.contract.errors import RemoteProtocolError, SpoolError, UnknownVersionError
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import (
    FRAME_HEADER_BYTES,
    MAX_FRAME_BYTES,
    SEGMENT_MAX_BYTES,
    Frame,
    find_frame,
    frame_at,
)
from rla_client.contract.spool.segments import check_stream, read_at, segment_numbers, segment_path

FIRST_READ_BYTES = 256 << 10  # usually enough for an opening frame
MOST_SEGMENT_BYTES = SEGMENT_MAX_BYTES + MAX_FRAME_BYTES + FRAME_HEADER_BYTES  # one frame may end beyond it


def read_opening(folder: Path) -> tuple[Opening, int]:
    """The opening frame of the oldest segment that has one, and the oldest segment's number.

    Raises:
        SpoolError: no segment has a readable opening frame, or the folder belongs to another user.
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


def _first_content(path: Path) -> RecordContent | None:
    """Content of the first complete frame of a segment, which is an opening frame in every segment."""
    for size in (FIRST_READ_BYTES, MAX_FRAME_BYTES + FRAME_HEADER_BYTES):
        data = read_at(path, 0, size)
        frame = next(valid_frames(data), None)
        if frame is not None:
            return decode(frame.kind, frame.payload)
        if len(data) < size:
            break
    return None


def valid_frames(data: bytes) -> Iterator[Frame]:
    """Frames of a segment, including those behind damage.

    Raises:
        UnknownVersionError: one is of a later release.
    """
    at = 0
    while at < len(data):
        frame = frame_at(data, at)
        if isinstance(frame, Frame):
            yield frame
            at = frame.end
        else:
            at = find_frame(data, at + 1)
