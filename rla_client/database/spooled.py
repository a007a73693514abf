"""Which folder a stream of this machine's spool writes into: its opening frame says so."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rla_client.errors import RlaError
from rla_client.protocol import MAX_FRAME_BYTES, Frame, FrameKind, frame_at, unpack
from rla_client.spool import read_at, segment_numbers, segment_path

OPENING_BYTES = 1 << 16  # of a segment; an opening frame has a kilobyte, few have more than this


def log_folder(stream: Path) -> str | None:
    """Log folder of the run of a stream, without links; None where that cannot be read."""
    with suppress(OSError, RlaError, LookupError, TypeError, ValueError):
        first = segment_path(stream, segment_numbers(stream)[0])
        found = frame_at(read_at(first, 0, OPENING_BYTES), 0)
        if found is None:
            found = frame_at(read_at(first, 0, MAX_FRAME_BYTES), 0)
        if isinstance(found, Frame) and found.kind == FrameKind.OPEN:
            opening = unpack(found.payload)
            return os.path.realpath(os.path.join(str(opening["root"]), str(opening["folders"]["log"])))
    return None
