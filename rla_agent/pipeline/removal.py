"""Streams that go: taken in to their end, given up by the user, or their item is not there.

Whether somebody removed an item, or it is away with its data root: a data root goes for a moment when it is
moved, unmounted, or on a server that is being restarted. Its runs are not removed then: their streams wait,
with their rows in the spool, and continue once the root is back. What counts as removed is an item whose
folder is gone while its root is there, and one whose files, as far as they are open here, have no name left
anywhere.

What a stream leaves behind goes, too: shared memory, copies of a fork, unused code. Copies of a fork go
before the stream does. The rest is safe to repeat and safe to miss. A child of the training process may
hold an arena's lock for a while after the stream's end, so shared memory is looked at again each
MEMORY_SWEEP_INTERVAL_S; the code store at the next end of a stream.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rla_agent.jobs.code import sweep_objects
from rla_agent.jobs.queue import JobContext
from rla_agent.jobs.source import sweep_arenas
from rla_agent.model.states import OutputState, StreamEvent, StreamState
from rla_agent.outputs.item_folder import item_is_there, root_is_away, same_root, why_parked
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.pipeline.reader import read_opening
from rla_agent.pipeline.recovery import sweep_leftovers
from rla_agent.pipeline.stream import Stream
from rla_agent.pipeline.widening import Widener
from rla_agent.store.state import AgentDatabase, Changes
from rla_client.contract.errors import RlaError
from rla_client.contract.files import FORK_COPY_PREFIX, TEMP_PREFIX, fsync_folder, open_folder
from rla_client.contract.opening import Opening
from rla_client.contract.paths import Places
from rla_client.contract.segments import BLOBS_NAME, stream_names

if TYPE_CHECKING:
    from rla_agent.pipeline.stream import Stream

GONE_PREFIX = f"{TEMP_PREFIX}gone-"  # streams on their way out
_log = logging.getLogger("rla_agent.pipeline.removal")


def look_for_item(stream: Stream, files: OpenFiles, widener: Widener) -> bool:
    """Decide what became of an item that was missed; True where the stream now waits for its data root.

    Its descriptors are closed: an unmounted file system is gone only when the last one is. Its rewrites
    are forgotten: with the root back the outputs are other ones (`recovery`).
    """
    if stream.state is not StreamState.ITEM_MISSED:
        return False
    opening = stream.opening
    removed = not item_is_there(opening) and (same_root(opening) or _deleted(stream, files))
    for output in stream.outputs:
        widener.forget(output, files)
    if removed:
        stream.handle(StreamEvent.REMOVED)
        _log.warning("item removed: %s; its further rows are dropped", opening.log_folder)
    else:
        stream.handle(StreamEvent.ROOT_AWAY, why_parked(opening.root))
    return not removed


def job_context(stream: Stream | None) -> JobContext | None:
    """What jobs of a stream run with; None where they must wait.

    A checkpoint changes no output, so no commit would have noticed that the data root is away: the stream
    is marked here, and its next look finds out whether its item is away or removed.
    """
    if stream is None or stream.root_away or stream.broken:
        return None
    if stream.outputs and root_is_away(stream.opening):
        stream.handle(StreamEvent.MISSED)
        return None
    return JobContext(stream.opening, stream.folder / BLOBS_NAME, stream.removed, stream.replayed)


def _deleted(stream: Stream, files: OpenFiles) -> bool:
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


def remove_durably(stream: Stream, database: AgentDatabase, wall: float) -> None:
    """Delete a stream that was taken in to its end, so that after any crash it is there or is done.

    Raises:
        OSError: it is still there.
        sqlite3.OperationalError: agent.db cannot be written.
    """
    sweep_leftovers(stream, database)
    database.commit(Changes(done=[(stream.name, wall)]))
    remove_stream(stream.folder)
    database.commit(Changes(forgotten=[stream.name]))


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


def give_up(stream: Stream) -> None:
    """End a stream as removed that is gone from the spool for good (`rla-agent forget`, say)."""
    _log.warning("stream %s was given up: %s", stream.name, stream.parked or stream.unread)
    stream.handle(StreamEvent.GIVEN_UP)


MEMORY_SWEEP_INTERVAL_S = 5.0  # listing /dev/shm and the spool: some 50 us
STORE_SWEEP_INTERVAL_S = 3600.0  # a store of many runs has thousands of files

_swept: dict[str, float] = {}


def sweep_half_made(spool: Path, older_than_s: float = 60.0) -> None:
    """Remove what a client was killed in the middle of making, or an agent of removing."""
    now = time.time()
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            old = entry.name.startswith(TEMP_PREFIX) and now - entry.stat().st_mtime > older_than_s
            if old or entry.name.startswith(GONE_PREFIX):
                shutil.rmtree(entry.path, ignore_errors=True)


def sweep_memory(places: Places) -> None:
    """Free shared memory of ended streams, and of streams that nobody knows any more."""
    with suppress(OSError):
        sweep_arenas(places.spool, stream_names)


def sweep_store(root: str) -> None:
    """Free code contents of a database that no run uses any more, at most once an hour."""
    now = time.monotonic()
    if now - _swept.get(root, float("-inf")) < STORE_SWEEP_INTERVAL_S:
        return
    _swept[root] = now
    try:
        freed = sweep_objects(root, time.time())
    except OSError as error:
        _log.warning("code store of %s not swept: %s", root, error)
        return
    if freed:
        _log.info("freed %d bytes of code that no run of %s uses", freed, root)


def sweep_fork_copies(spool: Path, stream: str, opening: Opening) -> None:
    """Remove what forks of a run copied and did not hand over, before the last stream of the run goes.

    A process that copies has a stream in the spool all the time, and so has a copy that was handed over,
    until its files are in their places.
    """
    with suppress(OSError):
        folder = open_folder(opening.root, opening.folders["log"])
        try:
            copies = [name for name in os.listdir(folder) if name.startswith(FORK_COPY_PREFIX)]
            if copies and not _has_others(spool, stream, opening.run):
                for name in copies:
                    shutil.rmtree(f"/proc/self/fd/{folder}/{name}")
        finally:
            os.close(folder)


def _has_others(spool: Path, stream: str, run: str) -> bool:
    for name in stream_names(spool):
        try:
            if name != stream and read_opening(spool / name)[0].run == run:
                return True
        except FileNotFoundError:
            continue
        except (OSError, RlaError):
            return True  # it may be one
    return False


def sweep_after(places: Places, opening: Opening) -> None:
    """All of it, after the end of one stream."""
    sweep_memory(places)
    sweep_store(opening.root)
