"""Streams that come and go: what lies in a spool, what keeps one from being taken up, when it is gone.

Reading an opening frame costs the main thread up to 256 KiB of file, which is asked for at each message of a
live client and four times a second otherwise. So a name that could not be read is tried again only after
RETRY_S, or when a segment came into its folder: that one has an opening frame of its own (`Unreadable`).

What one stream brings must not end the agent for all others. So taking one up has four ends: taken up; gone
(its folder is gone); not yet (tried again all the time); and parked, where trying again would change nothing:
its files, base or rows of agent.db make no sense (`RlaError`). Any other exception is a fault of the agent,
see `Volume`.

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
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_agent.model.states import OutputState, StreamEvent, StreamState
from rla_agent.outputs.data_roots import (
    item_is_there,
    root_is_away,
    same_root,
    why_parked,
)
from rla_agent.outputs.output import OpenFiles
from rla_agent.pipeline.blob_jobs import sweep_objects
from rla_agent.pipeline.checkpoint_jobs import sweep_arenas
from rla_agent.pipeline.commit import Widener
from rla_agent.pipeline.jobs import JobContext
from rla_agent.pipeline.recovery import recover, sweep_leftovers
from rla_agent.pipeline.stream import MOST_SEGMENT_BYTES, Stream, read_opening, valid_frames
from rla_agent.store.database import AgentDatabase, Changes
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError, UnknownVersionError
from rla_client.contract.filesystem.atomic_write import FORK_COPY_PREFIX, TEMP_PREFIX, fsync_folder
from rla_client.contract.filesystem.safe_paths import open_folder, open_root
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import FRAME_MAGIC
from rla_client.contract.spool.segments import (
    BLOBS_NAME,
    STREAM_NAME,
    check_stream,
    read_at,
    segment_numbers,
    segment_path,
    stream_names,
)
from rla_client.contract.spool.writer_liveness import writer_alive

LISTING_S = 5.0  # the folder is listed so often even when its mtime stays
CALM_S = 1.0  # an mtime is as coarse as the clock tick: two changes may bear the same one
RETRY_S = 4.0  # less than LISTING_S, after which a silent one is asked for again
HALF_MADE_S = 60.0  # no client is at making a stream for so long
GONE_PREFIX = f"{TEMP_PREFIX}gone-"  # streams on their way out
MEMORY_SWEEP_INTERVAL_S = 5.0  # listing /dev/shm and the spool: some 50 us
STORE_SWEEP_INTERVAL_S = 3600.0  # a store of many runs has thousands of files

_swept: dict[str, float] = {}
_log = logging.getLogger("rla_agent.pipeline.lifecycle")


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


class Unreadable(dict[str, str]):
    """Stream → why it cannot be taken in."""

    def __init__(self, spool: Path) -> None:
        super().__init__()
        self._spool = spool
        self._next: dict[str, tuple[float, int]] = {}  # when, and the folder's mtime that it was read at

    def read(self, name: str, now: float) -> Opening | None:
        """What a stream says of itself; None when it is not a stream, or cannot be read now.

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


def sweep_half_made(spool: Path) -> None:
    """Remove what a client was killed in the middle of making, or an agent of removing."""
    now = time.time()
    with suppress(OSError), os.scandir(spool) as entries:
        for entry in entries:
            old = entry.name.startswith(TEMP_PREFIX) and now - entry.stat().st_mtime > HALF_MADE_S
            if old or entry.name.startswith(GONE_PREFIX):
                shutil.rmtree(entry.path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Adopt:
    """A stream folder that a volume is to take up; `root` is its data root, where that is known."""

    stream: str
    folder: Path
    root: str = ""


class NotYetError(Exception):
    """A stream cannot be taken up now; the message is for `status`."""


def open_stream(item: Adopt, adjust: Callable[[Opening], Opening] | None) -> Stream | None:
    """Read what a stream says of itself; None when somebody removed its folder.

    Args:
        item: the stream.
        adjust: gives the opening that counts here, where the data root lies elsewhere now.

    Raises:
        NotYetError: it cannot be read; a cause like a lack of descriptors passes.
    """
    try:
        return Stream(item.stream, item.folder, adjust)
    except FileNotFoundError:
        return None
    except (RlaError, OSError) as error:
        raise NotYetError(f"not stored yet, retrying: {error}; its rows wait in the spool") from error


def align_outputs(stream: Stream, database: AgentDatabase, files: OpenFiles) -> None:
    """Bring a stream's outputs to where it can continue; `parked` says why that will not be.

    Raises:
        NotYetError: the disk does not take it now.
    """
    if not same_root(stream.opening):
        stream.handle(StreamEvent.ROOT_AWAY, why_parked(stream.opening.root))
        return
    waited = stream.parked
    if stream.root_away:
        stream.handle(StreamEvent.ROOT_FOUND)
    try:
        recover(stream, database, files)
    except OSError as error:
        close_files(stream, files)
        if waited:
            stream.handle(StreamEvent.ROOT_AWAY, waited)
        raise NotYetError(why_late(stream.opening, error)) from error
    except RlaError as error:
        close_files(stream, files)
        _log.warning("stream %s is not stored: %s", stream.name, error)
        stream.handle(StreamEvent.REFUSED, f"not stored, its rows stay in the spool: {error}")
    except Exception:
        close_files(stream, files)
        raise


def why_late(opening: Opening, error: OSError) -> str:
    """Say why a stream is not taken in yet, and of which run it is."""
    reason = error.strerror or str(error)
    file = f" ({error.filename})" if error.filename else ""
    return (
        f"not stored yet, retrying: the run in {opening.log_folder}: {reason}{file}; "
        "its rows wait in the spool"
    )


def close_files(stream: Stream, files: OpenFiles) -> None:
    """Close what is open of a stream's outputs."""
    for output in stream.outputs:
        files.close(output)


def root_is_back(stream: Stream, database: AgentDatabase, files: OpenFiles, faults: dict[str, str]) -> bool:
    """Take up a stream whose data root was away and is there now."""
    if not stream.root_away or not same_root(stream.opening):
        return False
    try:
        align_outputs(stream, database, files)
    except NotYetError as error:
        faults[stream.name] = str(error)
        return False
    faults.pop(stream.name, None)
    return not stream.parked


def waits_behind(stream: Stream, others: Iterable[Stream], late: Iterable[str]) -> str | None:
    """Why a stream of a run that was forked or resumed has to wait; None when it has not.

    Its client names the streams that come before it. Earlier releases' clients did not: there the epochs
    tell, and the names, which sort by time.

    Args:
        stream: one that is to be taken up.
        others: those that are taken up. An earlier one of the same run has to come to its end first.
        late: names of those that could not be taken up yet. An earlier one may be of the same run: its
            opening frame cannot be read now.

    Returns:
        The reason if it is one for a human, else an empty text.

    Raises:
        NotYetError: the spool is away.
    """
    plan = stream.opening.continues
    if plan is None:
        return None
    if plan.after:
        with closing_fd(open_spool(stream.folder.parent)) as folder:  # which may be renamed meanwhile
            before = sorted(set(os.listdir(folder)) & set(plan.after))
        parked = {other.name: other.parked for other in others}
        why = next((parked[name] for name in before if parked.get(name)), "")
        return _why_waiting(why) if before else None
    for other in others:
        earlier = other.opening
        if earlier.run == stream.opening.run and earlier.primary and earlier.epoch < stream.opening.epoch:
            return _why_waiting(other.parked)
    first = min(late, default=stream.name)
    return f"waits for the earlier stream {first}" if first < stream.name else None


def open_spool(spool: Path) -> int:
    """Descriptor of a spool.

    Raises:
        NotYetError: it is away.
    """
    try:
        return open_root(spool)
    except OSError as error:
        raise NotYetError(f"not stored yet, retrying: {error}") from error


def _why_waiting(parked: str) -> str:
    return f"waits for an earlier stream of its run: {parked}" if parked else ""


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


def give_up(stream: Stream) -> None:
    """End a stream as removed that is gone from the spool for good (`rla-agent forget`, say)."""
    _log.warning("stream %s was given up: %s", stream.name, stream.parked or stream.unread)
    stream.handle(StreamEvent.GIVEN_UP)


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
    with suppress(OSError), closing_fd(open_folder(opening.root, opening.folders["log"])) as folder:
        copies = [name for name in os.listdir(folder) if name.startswith(FORK_COPY_PREFIX)]
        if copies and not _has_others(spool, stream, opening.run):
            for name in copies:
                shutil.rmtree(f"/proc/self/fd/{folder}/{name}")


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
