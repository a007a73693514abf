"""Base files, the states of a stream's outputs at the start of a segment.

The oldest segment is the only one that has the stream's opening frame and, where agent.db is lost, the only
place to begin at. So a segment goes only when the next one and its base file are durable.
"""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from typing import Any

from rla_agent.outputs.output_file import Output
from rla_agent.pipeline.segment_reader import MOST_SEGMENT_BYTES
from rla_agent.pipeline.stream import Stream
from rla_client.contract.filesystem.atomic_write import fsync_file, fsync_folder, write_atomic
from rla_client.contract.spool.segments import base_path, read_at, segment_numbers, segment_path


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


def freeable(stream: Stream) -> list[int]:
    """Segments that every durable position has passed; the next one's base must be written first."""
    low = stream.all_durable.number
    if not all(low in output.bases or output.storable for output in stream.outputs):
        return []  # what a base would say of it now is not durable
    return [number for number in segment_numbers(stream.folder) if number < low]


def free_segments(stream: Stream) -> None:
    """Step 5 of a commit (`group_commit`): passed segments go.

    Raises:
        OSError: they stay for now.
    """
    passed = freeable(stream)
    if not passed:
        return
    following = passed[-1] + 1
    # 5a. the next segment is durable: from now on it has the only opening frame
    fsync_file(segment_path(stream.folder, following))
    # 5b. so is its base file, with the states at its start
    write_base(stream, following)
    # 5c. the passed segments go; after a kill in between, the newest base is the one that counts
    for number in passed:
        segment_path(stream.folder, number).unlink(missing_ok=True)
        base_path(stream.folder, number).unlink(missing_ok=True)
    fsync_folder(stream.folder)
    # 5d. the states at their starts are forgotten
    stream.forget_bases(following)


def write_base(stream: Stream, number: int) -> None:
    """Write the states at the start of a segment beside it, unless that was done.

    Raises:
        OSError: it could not be made durable; no earlier segment may be deleted.
    """
    path = base_path(stream.folder, number)
    if path.exists():
        return
    outputs = {output.name: output.bases.get(number) or output.base() for output in stream.outputs}
    content = {"control": stream.bases.get(number, {"rows": stream.rows}), "outputs": outputs}
    write_atomic(path, json.dumps(content).encode(), mode=0o600)
