"""Removal of finished or discarded streams."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

from rla_agent.model.stream_states import StreamEvent
from rla_agent.pipeline.stream import Stream
from rla_agent.pipeline.temp_files import sweep_leftovers
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_folder

GONE_PREFIX = f"{TEMP_PREFIX}gone-"  # streams on their way out
_log = logging.getLogger("rla_agent.pipeline.remove_stream")


def remove_stream(folder: Path) -> None:
    """Delete a stream that was read to its end.

    It is renamed away in one step first: half of a stream would pass for a complete one.

    Raises:
        OSError: it is still there.
    """
    gone = folder.with_name(f"{GONE_PREFIX}{folder.name}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
        fsync_folder(folder.parent)
    shutil.rmtree(gone, ignore_errors=True)


def remove_durably(stream: Stream, database: AgentDatabase, wall: float) -> None:
    """Delete a stream that was read to its end; after any crash it is either there or recorded as done.

    Raises:
        OSError: it is still there.
        sqlite3.OperationalError: agent.db cannot be written.
    """
    sweep_leftovers(stream, database)
    database.commit(CommitChanges(done=[(stream.name, wall)]))
    remove_stream(stream.folder)
    database.commit(CommitChanges(forgotten=[stream.name]))


def discard_stream(stream: Stream) -> None:
    """Record a stream as removed that is gone from the spool for good (by `rla-agent forget`, say)."""
    _log.warning("stream %s was given up: %s", stream.name, stream.parked or stream.unread)
    stream.handle(StreamEvent.GIVEN_UP)
