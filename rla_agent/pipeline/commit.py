"""Making what streams brought durable: group commit, rewrites of tables, small files, answers to flushes.

A commit takes all dirty streams of a volume: files first, then one transaction, then whatever may be
forgotten. The outputs that changed are synced, every position is stored in one SQLite transaction, and only
then do segments go, each after the next one's opening frame and its base lie durably beside it. A file whose
sync failed is never synced again through the same descriptor: what was durable is copied to a new file and
the rest is replayed.

A CSV that needs more columns is rewritten in a worker thread, on a copy: the widened temp file is written and
synced; then one transaction stores its generation, rows, columns and size together with the intent
temp → final; then it is renamed, and the folder synced; the next commit clears the intent. After a crash in
between, recovery renames. Until then rows wait in the spool. A rewrite starts at once when the last one is
REST_FACTOR times its own duration ago, or when somebody waits for the rows (flush, end of the run); it takes
all columns that the waiting rows need, so that late keys one at a time cost a few rewrites and not one each.

Small whole files of an item come as records: parameters, notes, environment, small snapshots. One
is durable before its stream's position passes it, so one that cannot be written holds up what comes
after it. Only what is no fault of this file may do that for long: a full or broken disk, an agent out of
descriptors, a data root that is away. Where a folder is gone or a name taken, the file is given up at once;
where writing is forbidden, after REFUSED_S. What is given up stands in the log and, as long as its stream is
here, among the problems of `status`.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass

from rla_agent.model.ingest import ItemFile
from rla_agent.model.states import OutputEvent, OutputState, StreamEvent
from rla_agent.outputs.data_roots import root_is_away, same_root, temp_name
from rla_agent.outputs.encoders import CsvEncoder, new_columns, read_chunks, widened
from rla_agent.outputs.output import OpenFiles, Output
from rla_agent.pipeline.jobs import JobQueue
from rla_agent.pipeline.recovery import renew_base
from rla_agent.pipeline.stream import Stream
from rla_agent.store.database import AgentDatabase, Changes
from rla_client.contract.errors import RlaError, UnsafeNameError
from rla_client.contract.filesystem.atomic_write import NEW_FLAGS, write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import ItemGoneError, held_folder, open_folder
from rla_client.contract.job.snapshot_footer import is_older
from rla_client.contract.layout import OWN_NAMES
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.run_file import RUN_FILE
from rla_client.contract.safe_names import check_relative
from rla_client.contract.spool.opening import Opening

REST_FACTOR = 20.0
SHORTEST_REST_S = 1.0
SCAN_S = 0.1  # of looking at what waits for the columns that it needs; other streams wait meanwhile
LONGEST_REST_S = 60.0  # of doubling; a long rewrite may ask for more
PARALLEL_SYNCS = 8  # below, a pool costs more than it saves
NOTHING = (0, 0)
GONE_S = 10.0  # a client that still waits has asked again long before
KEPT_ENDED = 10_000  # names of streams that were taken in to their end
REFUSED_S = 60.0  # rows wait meanwhile; whoever fixes a mount or the rights of a folder is done by then
MOST_FAULTS = 20  # of one stream that are shown; the log has all
# a folder or a link is where the file would go, or its folder is not there
NEVER = frozenset((
    errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.ENOENT,
))  # fmt: skip
# these say nothing of the file: all that the agent writes has to wait
WAITS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
_log = logging.getLogger("rla_agent.pipeline.commit")


class Committer:
    """Commits the streams of one volume."""

    def __init__(self, database: AgentDatabase, files: OpenFiles, executor: Executor) -> None:
        self._database = database
        self._files = files
        self._executor = executor  # for nothing else: a commit must not queue behind long work

    def commit(self, dirty: list[Stream], changes: Changes, faults: dict[str, str]) -> bool:
        """Make the present state of dirty streams, none of them parked, durable.

        Returns:
            False when the transaction failed (a full state disk); everything stays dirty.
        """
        _look_for_roots(dirty)
        self._sync([(stream, output) for stream in dirty for output in stream.outputs if output.dirty])
        stored = {stream: self._storable(stream) for stream in dirty}
        for stream, outputs in stored.items():
            if not stream.new_files:
                changes.outputs.append((stream.name, stream.control_row()))
            changes.outputs += [(stream.name, output.row()) for output in outputs]
        try:
            self._database.commit(changes)
        except sqlite3.OperationalError as error:
            faults["agent.db"] = f"agent.db cannot be written: {error}; rows stay in the spool"
            return False
        faults.pop("agent.db", None)
        for stream, outputs in stored.items():
            if not stream.new_files:
                stream.durable = stream.position
            for output in outputs:
                output.stored()
            stream.committed(whole=len(outputs) == len(stream.outputs) and not stream.new_files)
            try:
                stream.free_segments()
            except OSError as error:
                _log.warning("segments stay for now: %s: %s", stream.folder, error)
        return True

    def _storable(self, stream: Stream) -> list[Output]:
        """Outputs whose state is durable in their files, and no lie where agent.db is lost later."""
        outputs = [output for output in stream.outputs if output.storable]
        moved = [output for output in outputs if output.moved]
        try:
            if moved:
                renew_base(stream, moved)
        except OSError as error:
            _log.warning("outputs that somebody replaced wait: %s: %s", stream.folder, error)
            return [output for output in outputs if not output.moved]
        return outputs

    def _sync(self, work: list[tuple[Stream, Output]]) -> None:
        most = max(1, self._files.limit // 2)  # so that opening one closes none of those before it
        for begin in range(0, len(work), most):
            opened = [
                (stream, output, descriptor)
                for stream, output in work[begin : begin + most]
                if (descriptor := self._opened(stream, output)) is not None
            ]
            parallel = len(opened) > PARALLEL_SYNCS
            syncs = self._executor.map if parallel else map  # the threads touch nothing but descriptors
            errors = list(syncs(_try_sync, [descriptor for _, _, descriptor in opened]))
            for (stream, output, _), error in zip(opened, errors, strict=True):
                if error is None:
                    output.synced()
                else:
                    self._go_back(stream, output, error)

    def _opened(self, stream: Stream, output: Output) -> int | None:
        """Descriptor of a file that is to be synced now."""
        if output.state is OutputState.SUSPECT:
            if not output.error:  # else it was refused a moment ago
                self._rebuild(stream, output)
            return None
        try:
            return output.descriptor_to_sync(self._files)
        except ItemGoneError:
            stream.handle(StreamEvent.MISSED)
        except OSError as error:
            self._go_back(stream, output, error)
        return None

    def _go_back(self, stream: Stream, output: Output, error: OSError) -> None:
        """After a failed sync: the descriptor must not be trusted again, nor what was written through it."""
        _log.error("sync failed, going back to what is durable: %s: %s", output.path, error)
        output.distrust(self._files)
        self._rebuild(stream, output)

    def _rebuild(self, stream: Stream, output: Output) -> None:
        """Go back to the last commit in a new file; tried again RETRY_S later if that fails."""
        row = self._database.outputs_of(stream.name).get(output.name) or output.anchor
        try:
            if row is not None:
                output.rebuild(self._files, row, temp_name(stream.name))
        except ItemGoneError:
            stream.handle(StreamEvent.MISSED)
        except OSError as error:
            output.fail(error)
            _log.error("rebuild failed: %s: %s", output.path, error)


def _look_for_roots(dirty: Iterable[Stream]) -> None:
    """Have the next look at streams that ended find out whether their items are away or removed.

    The end of a run changes no output, so none would notice that its run.json cannot be written.
    """
    for stream in dirty:
        if stream.writer_gone and stream.outputs and root_is_away(stream.opening):
            stream.handle(StreamEvent.MISSED)


def _try_sync(descriptor: int) -> OSError | None:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error
    return None


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A finished temp file."""

    temp: str
    size: int
    columns: list[str]
    seconds: float


class Widener:
    """Rewrites CSV outputs of one volume."""

    def __init__(self, executor: Executor, database: AgentDatabase, ended: Callable[[str], object]) -> None:
        self._executor = executor
        self._database = database
        self._ended = ended  # called from any thread, with the stream, when a rewrite is to be finished
        self._running: dict[Output, Future[Rewritten]] = {}

    def serve(self, stream: Stream, output: Output, files: OpenFiles, *, hurry: bool) -> None:
        """Start a rewrite that is due, or finish one that has ended; waits for none.

        `hurry` leaves out the rest after the last one.
        """
        if output.intent:
            if not output.error:
                finish_intent(stream, output)
            return
        running = self._running.get(output)
        if running is not None:
            if running.done():
                self._finish(stream, output, files)
            return
        if (
            output.state is OutputState.WIDENING
            and not output.error
            and (hurry or time.monotonic() >= output.next_rewrite)
        ):
            self._start(stream, output, files)

    def forget(self, output: Output, files: OpenFiles) -> None:
        """Nobody waits for an output's file or its rewrite any more."""
        self._running.pop(output, None)
        files.close(output)

    def _start(self, stream: Stream, output: Output, files: OpenFiles) -> None:
        encoder = output.encoder
        if not isinstance(encoder, CsvEncoder):
            return
        columns, until = list(encoder.columns), time.monotonic() + SCAN_S
        for records in stream.pending_records(output):
            columns += new_columns(columns, records)
            if time.monotonic() > until:
                break  # what comes later may cost one more rewrite
        files.close(output)
        if output.state is OutputState.SUSPECT:
            return
        output.handle(OutputEvent.REWRITE)
        added = len(columns) - len(encoder.columns)
        begun = self._executor.submit(rewrite, output, columns, added, output.size, temp_name(stream.name))
        self._running[output] = begun
        begun.add_done_callback(lambda _: self._ended(stream.name))

    def _finish(self, stream: Stream, output: Output, files: OpenFiles) -> None:
        future = self._running.pop(output)
        try:
            done = future.result()
        except ItemGoneError:
            output.handle(OutputEvent.REWRITE_FAILED)
            stream.handle(StreamEvent.MISSED)
            return
        except FileNotFoundError:
            output.handle(OutputEvent.REWRITE_FAILED)
            if not os.path.lexists(output.path):
                output.begin_again(files)
                stream.touch()
            return
        except OSError as error:
            output.handle(OutputEvent.REWRITE_FAILED)
            output.fail(error)
            return
        self._replace(stream, output, done, files)
        output.rest_s = rest_after(done.seconds, output.rest_s, time.monotonic() - output.next_rewrite)
        output.next_rewrite = time.monotonic() + output.rest_s

    def _replace(self, stream: Stream, output: Output, rewritten: Rewritten, files: OpenFiles) -> None:
        """Store that a finished temp file is the output's content from now on, then give it the name.

        When that cannot be stored the old file stays and the temp file goes.
        """
        size, state = output.size, output.encoder.state()
        output.encoder.restore({**state, "columns": rewritten.columns})
        output.size = rewritten.size
        output.generation += 1
        try:
            self._database.commit(Changes(outputs=[(stream.name, output.row(intent=rewritten.temp))]))
        except sqlite3.OperationalError as error:
            output.size = size
            output.encoder.restore(state)
            output.fail(OSError(0, str(error)))
            with suppress(OSError), held_folder(output.root, output.folder) as folder:
                (folder / rewritten.temp).unlink()
            output.handle(OutputEvent.REWRITE_FAILED)
            return
        output.durable = output.position
        output.handle(OutputEvent.REWRITTEN, rewritten.temp)
        files.close(output)
        finish_intent(stream, output)


def rest_after(rewrite_s: float, former_rest_s: float, calm_s: float) -> float:
    """How long rows with new columns wait after a rewrite.

    While new columns keep coming the rest doubles, so that the bytes of all rewrites together stay
    a small multiple of the file.

    Args:
        rewrite_s: what the rewrite took.
        former_rest_s: the rest before it.
        calm_s: how long ago that rest had ended.
    """
    growing = 2.0 * former_rest_s if calm_s < former_rest_s else 0.0
    return max(REST_FACTOR * rewrite_s, min(growing, LONGEST_REST_S), SHORTEST_REST_S)


def rewrite(output: Output, columns: list[str], added: int, size: int, temp: str) -> Rewritten:
    """Write the widened copy of an output's first `size` bytes beside it, as `temp`, durably.

    Raises:
        ItemGoneError: the item's folder is not there.
        OSError: it could not be written; no temp file is left.
    """
    began = time.monotonic()
    with closing_fd(output.open_file()) as old, closing_fd(open_folder(output.root, output.folder)) as folder:
        new = os.open(temp, NEW_FLAGS, os.fstat(old).st_mode & 0o777, dir_fd=folder)
        try:
            with open(new, "wb") as file:
                file.writelines(widened(read_chunks(old, size), columns, added))
                file.flush()
                os.fsync(file.fileno())
                total = file.tell()
        except OSError:
            os.unlink(temp, dir_fd=folder)
            raise
    return Rewritten(temp, total, columns, time.monotonic() - began)


def finish_intent(stream: Stream, output: Output) -> None:
    """Give a stored temp file its name; on failure the output waits, and this is called again."""
    try:
        output.take_name(output.intent)
    except (FileNotFoundError, NotADirectoryError):
        stream.handle(StreamEvent.MISSED)
    except OSError as error:
        output.fail(error)
    else:
        output.handle(OutputEvent.RENAMED)
        output.touch()
        stream.touch()  # the next commit clears the intent


def keep_item_file(opening: Opening, file: ItemFile) -> None:
    """Make a small file of the item durable; what is there already and equal is only synced.

    A snapshot takes no place of a later one.

    Raises:
        OSError: it could not be written.
        UnsafeNameError: the name leaves the item.
    """
    *below, name = check_relative(file.path, what="item file")
    where = "/".join([opening.folders[file.kind], *below])
    with closing_fd(open_folder(opening.root, where, create=bool(below))) as folder:
        path = f"/proc/self/fd/{folder}/{name}"
        if is_older(file.content, path):  # the later one did not go through the spool, which was full
            return
        with suppress(FileNotFoundError), closing_fd(os.open(path, READ_FLAGS)) as descriptor:
            if os.read(descriptor, len(file.content) + 1) == file.content:
                os.fsync(descriptor)
                os.fsync(folder)
                return
        write_atomic(path, file.content, mode=file_mode(folder))


def _check_not_own(stream: Stream, file: ItemFile) -> None:
    """Refuse a file that would take the place of one that we write ourselves, again and again.

    Raises:
        UnsafeNameError: it would.
    """
    if not OWN_NAMES.isdisjoint(file.path.split("/")):
        raise UnsafeNameError(f"item file {file.path!r} cannot be used: the name is the agent's")
    opening = stream.opening
    path = os.path.normpath(os.path.join(opening.root, opening.folders[file.kind], file.path))
    ours = {os.path.join(opening.log_folder, RUN_FILE), *(output.path for output in stream.outputs)}
    if path in ours:
        raise UnsafeNameError(f"item file {file.path!r} cannot be used: the agent writes this one itself")


def keep_new_files(stream: Stream, faults: dict[str, str], now: float) -> None:
    """Write the files that a stream brought, in order; one that cannot be written yet waits.

    Of several contents of one file only the last is written.

    Args:
        stream: `new_files` holds what waits.
        faults: what `status` shows, by `<stream>/<file>`.
        now: monotonic.
    """
    newest = {(file.kind, file.path): file for file in stream.new_files}
    while stream.new_files and not stream.removed:
        file = stream.new_files[0]
        if newest[file.kind, file.path] is not file:
            del stream.new_files[0]
            continue
        fault = f"{stream.name}/{file.path}"
        try:
            _check_not_own(stream, file)
            keep_item_file(stream.opening, file)
        except OSError as error:
            if _may_pass(stream, error, now):
                why = error.strerror or error  # its path is one of a descriptor
                faults[fault] = f"{file.path} is not kept yet: {why}: {stream.opening.root}"
                return
            _give_up(stream, file, error.strerror or str(error), faults)
        except (RlaError, KeyError) as error:
            _give_up(stream, file, str(error), faults)
        else:
            faults.pop(fault, None)
        stream.refused_since = None
        del stream.new_files[0]
    stream.new_files.clear()


def _may_pass(stream: Stream, error: OSError, now: float) -> bool:
    """Whether a file is to be tried again."""
    if error.errno in WAITS:
        return True
    if error.errno in NEVER:  # unless all of the data root is away
        return error.errno == errno.ENOENT and not same_root(stream.opening)
    if stream.refused_since is None:
        stream.refused_since = now
    if now - stream.refused_since < REFUSED_S:
        return True
    rows_wait_too = not os.access(stream.opening.log_folder, os.W_OK)
    return error.errno == errno.EROFS and rows_wait_too


def _give_up(stream: Stream, file: ItemFile, why: str, faults: dict[str, str]) -> None:
    fault = f"{stream.name}/{file.path}"
    stream.give_up_file(file.path, why)
    message = f"{file.path} was not kept: {why}"
    _log.warning("%s: %s", stream.opening.log_folder, message)
    if fault in faults or sum(key.startswith(f"{stream.name}/") for key in faults) < MOST_FAULTS:
        faults[fault] = message


def drop_faults(faults: dict[str, str], stream: str) -> None:
    """Forget what was wrong with a stream that is gone, and with its files."""
    for key in [key for key in faults if key == stream or key.startswith(f"{stream}/")]:
        del faults[key]


# all before is durable; how many media, and others, could not be kept
Answer = Callable[[bool, tuple[int, int]], None]


@dataclass(frozen=True, slots=True)
class Flush:
    """Answer `peer` when everything before a position is durable; it asks again and again."""

    peer: bytes
    stream: str
    number: int
    offset: int
    media: bool
    answer: Answer


class FlushWaiters:
    """Flushes of one volume that were not answered yet."""

    def __init__(self, database: AgentDatabase, jobs: JobQueue) -> None:
        self._database = database
        self._jobs = jobs
        self._waiting: dict[str, dict[bytes, tuple[Flush, float]]] = {}  # by stream, and who asks
        self._ended: dict[str, None] = {}
        self.fresh = False  # something new was asked since the last commit

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flush: Flush) -> None:
        """Answer this one when its time has come."""
        of_stream = self._waiting.setdefault(flush.stream, {})
        known, _ = of_stream.get(flush.peer, (None, 0.0))
        self.fresh |= known is None or (known.number, known.offset) != (flush.number, flush.offset)
        of_stream[flush.peer] = flush, time.monotonic()

    def awaits(self, stream: str) -> bool:
        """Whether somebody waits for a stream."""
        return stream in self._waiting

    def ended(self, stream: str) -> None:
        """A stream was taken in to its end and is gone."""
        self._ended[stream] = None
        self._jobs.forget(stream)
        if len(self._ended) > KEPT_ENDED:
            del self._ended[next(iter(self._ended))]

    def answer(self, streams: Mapping[str, Stream], coming: Collection[str]) -> None:
        """Answer what can be answered after a commit.

        Args:
            streams: those that are taken in now.
            coming: streams that are not among them and will be.
        """
        self.fresh = False
        since = time.monotonic() - GONE_S
        for name, of_stream in list(self._waiting.items()):
            for peer, (flush, asked) in list(of_stream.items()):
                if asked <= since or self._answered(flush, streams.get(name), coming):
                    del of_stream[peer]
            if not of_stream:
                del self._waiting[name]

    def _answered(self, flush: Flush, stream: Stream | None, coming: Collection[str]) -> bool:
        if stream is None and flush.stream in coming:
            return False
        if stream is None:
            flush.answer(flush.stream in self._ended or self._database.is_done(flush.stream), NOTHING)
        elif stream.removed or stream.parked or self._jobs.broken(stream.name, media=flush.media):
            flush.answer(False, NOTHING)
        elif stream.all_durable >= (flush.number, flush.offset) and not self._jobs.pending(
            stream.name, media=flush.media
        ):
            media, others = self._jobs.failed(stream.name)
            flush.answer(True, (media, others + stream.given_up))
        else:
            return False
        return True
