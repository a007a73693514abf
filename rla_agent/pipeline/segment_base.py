"""Base files, the states of a stream's outputs at the start of a segment."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from typing import Any

from rla_agent.outputs.output_file import Output
from rla_agent.pipeline.segment_reader import MOST_SEGMENT_BYTES
from rla_agent.pipeline.stream import Stream
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.spool.segments import base_path, read_at, segment_numbers


def newest_base(stream: Stream) -> tuple[int, dict[str, Any] | None]:
    """The newest readable base.

    A base is written once every output is durably past it, so older segments are leftovers.
    """
    for number in reversed(segment_numbers(stream.folder)):
        with suppress(FileNotFoundError, ValueError, RecursionError):
            base = json.loads(read_at(base_path(stream.folder, number), 0, MOST_SEGMENT_BYTES))
            match base:
                case {"control": dict() as control, "outputs": dict()} if isinstance(
                    control.get("rows", 0), int
                ):
                    return number, base
    return 0, None


def renew_base(stream: Stream, outputs: list[Output]) -> None:
    """Bring some outputs up to date in the newest base; where none is readable, write a new one of all.

    Raises:
        OSError: it could not be made durable, or not all that a new one would state is durable.
    """
    number, base = newest_base(stream)
    if base is None:
        if not all(output.storable for output in stream.outputs):
            raise OSError(errno.EAGAIN, "its base file is damaged, and a new one has to wait")
        number = min(segment_numbers(stream.folder), default=stream.first_segment)
        outputs, base = stream.outputs, {"control": stream.bases.get(number, {}), "outputs": {}}
    base["outputs"].update({output.name: output.base() for output in outputs})
    write_atomic(base_path(stream.folder, number), json.dumps(base).encode(), mode=0o600)
