"""Detection of missing data roots.

A data root is missing for a while when it is moved or unmounted, or when its server restarts. Its runs do not
count as removed then: their streams wait, with their rows in the spool, and continue once the root is back.
An item counts as removed where its folder is gone while its root is there, or where none of its open files
has a name left.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from rla_agent.jobs.job_queue import JobContext
from rla_agent.model.stream_states import OutputState, StreamEvent, StreamState
from rla_agent.outputs.data_root_presence import item_is_there, root_is_away, same_root, why_parked
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.pipeline.csv_widening import Widener
from rla_agent.pipeline.open_stream import StreamNotReadyError, align_outputs
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import AgentDatabase
from rla_client.contract.spool.segments import BLOBS_NAME

_log = logging.getLogger("rla_agent.pipeline.data_root_watch")


def root_is_back(stream: Stream, database: AgentDatabase, files: OpenFiles, faults: dict[str, str]) -> bool:
    """Reopen a stream whose data root is back."""
    if not stream.root_away or not same_root(stream.opening):
        return False
    try:
        align_outputs(stream, database, files)
    except StreamNotReadyError as error:
        faults[stream.name] = str(error)
        return False
    faults.pop(stream.name, None)
    return not stream.parked


def look_for_item(stream: Stream, files: OpenFiles, widener: Widener) -> bool:
    """Decide whether a missing item was removed; True where the stream now waits for its data root.

    Its descriptors are closed: an unmounted file system is gone only when the last one is. Its rewrites
    are forgotten: with the root back the outputs are other ones (`recovery.recover`).
    """
    if stream.state is not StreamState.ITEM_MISSED:
        return False
    opening = stream.opening
    removed = not item_is_there(opening) and (same_root(opening) or _all_unlinked(stream, files))
    for output in stream.outputs:
        widener.forget(output, files)
    if removed:
        stream.handle(StreamEvent.REMOVED)
        _log.warning("item removed: %s; its further rows are dropped", opening.log_folder)
    else:
        stream.handle(StreamEvent.ROOT_AWAY, why_parked(opening.root))
    return not removed


def job_context(stream: Stream | None) -> JobContext | None:
    """Context in which jobs of a stream run; None where they must wait.

    A checkpoint changes no output, so no commit would have noticed that the data root is away: the stream
    is marked here, and its next look finds out whether its item is away or removed.
    """
    if stream is None or stream.root_away or stream.broken:
        return None
    if stream.outputs and root_is_away(stream.opening):
        stream.handle(StreamEvent.MISSED)
        return None
    return JobContext(stream.opening, stream.folder / BLOBS_NAME, stream.removed, stream.replayed)


def _all_unlinked(stream: Stream, files: OpenFiles) -> bool:
    """Whether no file of a stream has a name left, as far as they are open."""
    links = []
    for output in stream.outputs:
        descriptor = files.known(output)
        if descriptor is not None:
            links.append(1)
            with suppress(OSError):
                links[-1] = os.fstat(descriptor).st_nlink
    begun_again = any(output.moved and output.state is OutputState.NEW for output in stream.outputs)
    return not any(links) and (bool(links) or begun_again)
