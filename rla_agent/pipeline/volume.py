"""Volume, the thread that ingests the streams of one file system.

A hung or slow disk therefore delays only its own streams. The thread's loop: take what the ingest thread
put into the queue, check every stream each TICK_S (new bytes, lock, end), commit each `commit_interval_s`
or when a flush asks. Sleeping streams are checked each LOCK_LOOK_S only; a message wakes the thread.

An internal error of the agent while it opens or reads one stream stops that stream alone: the traceback is
logged, `status` counts it, and the stream stays unchanged in the spool for the agent's next start. Faults of
agent.db, of a disk without an output to blame, or of the machine's memory end the agent: they concern all
streams.

The queue is bounded: beyond QUEUE_MAX_ITEMS hints are dropped, because each stream is checked periodically
anyway.
"""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rla_agent.jobs.job_queue import JobKind, JobQueue
from rla_agent.jobs.runners import KINDS
from rla_agent.model.fault_log import FaultLog
from rla_agent.model.records import Position
from rla_agent.model.run_record import RunRecord
from rla_agent.model.stream_states import OutputState, StreamEvent
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.pipeline.csv_widening import Widener
from rla_agent.pipeline.data_root_watch import job_context, look_for_item, root_is_back
from rla_agent.pipeline.flush import Flush, FlushWaiters
from rla_agent.pipeline.group_commit import Committer
from rla_agent.pipeline.item_files import drop_faults, keep_new_files
from rla_agent.pipeline.open_stream import (
    Adopt,
    StreamNotReadyError,
    align_outputs,
    close_files,
    open_spool,
    open_stream,
)
from rla_agent.pipeline.remove_stream import discard_stream, remove_durably
from rla_agent.pipeline.run_registry import RunRegistry
from rla_agent.pipeline.stream import Stream
from rla_agent.pipeline.stream_cleanup import sweep_after, sweep_fork_copies
from rla_agent.pipeline.stream_order import waits_behind
from rla_agent.pipeline.writer_ends import WriterEnds
from rla_agent.store.agent_db import AgentDatabase, CommitChanges
from rla_client.config.schema import AgentConfig
from rla_client.contract.agent.places import Places
from rla_client.contract.filesystem.safe_paths import ItemGoneError
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.writer_liveness import LOCKLESS_S, writer_alive

LAST_COMMIT_S = 1.0  # granted beyond the deadline of a stop
TICK_S = 0.25
LOCK_LOOK_S = 1.0  # between looks at sleeping streams and their locks, and at all runs
ASLEEP_S = 5.0  # without a message, then a quiet stream is looked at only each LOCK_LOOK_S
VALIDATE_VARIABLE = "RLA_AGENT_VALIDATE"  # set by tests: everything is validated after each cycle
QUEUE_MAX_ITEMS = 20_000  # some 10 MiB of hints
TURN_ITEMS = 1000  # taken from the queue before streams are checked
FLUSH_TICK_S = 0.05  # while a flush waits
TURN_S = 0.1  # read from one stream before the others and a commit have their turn
DRAIN_POLL_S = 0.01
MAX_NAMED = 3  # data roots, in status
OF_ALL = (sqlite3.Error, OSError, MemoryError)  # faults that concern more than one stream

_log = logging.getLogger("rla_agent.pipeline.volume")


@dataclass(frozen=True, slots=True)
class StreamHint:
    """A client's message: its stream has bytes up to `end`."""

    stream: str
    end: Position


@dataclass(frozen=True, slots=True)
class JobsDone:
    """A job ended."""


@dataclass(frozen=True, slots=True)
class RewriteDone:
    """A rewrite of an output ended, and is to be finished."""

    stream: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Read what is there, commit and end; not later than `deadline` (monotonic)."""

    deadline: float


class ItemObserver(Protocol):
    """Replication, notified when an item begins, changes and ends."""

    def run_opened(self, opening: Opening) -> None:
        """A stream of an item was opened."""

    def committed(self, streams: Iterable[Stream]) -> None:
        """Files of these streams' items have changed, and are on disk."""

    def run_ended(self, opening: Opening) -> None:
        """A stream was read to its end."""


class Volume(threading.Thread):
    """Thread that owns the streams of one file system."""

    def __init__(  # noqa: PLR0913, PLR0917 - the composition root wires it
        self,
        name: str,
        places: Places,
        settings: AgentConfig,
        on_failure: Callable[[], None],
        on_done: Callable[[str], object],
        adjust: Callable[[Opening], Opening] | None = None,
        replication: ItemObserver | None = None,
        registry: RunRegistry | None = None,
        kinds: Mapping[str, JobKind] = KINDS,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.streams: dict[str, Stream] = {}
        self._registry = registry or RunRegistry()
        self._writers = WriterEnds()
        self.faults: dict[str, str] = {}
        self.turn = time.monotonic()
        self.at = ""  # data root in whose service the thread is now; empty: several, or none
        self.commit_lag_s = 0.0
        self._places = places
        self._settings = settings
        self._on_failure = on_failure
        self._on_done = on_done
        self._validates = os.environ.get(VALIDATE_VARIABLE) == "1"
        self._replication = replication
        self._adjust = adjust
        self._kinds = kinds
        self.through = threading.Event()  # nothing more is read; jobs may still run
        self._queue: queue.SimpleQueue[StreamHint | Flush | Adopt | JobsDone | RewriteDone | Stop] = (
            queue.SimpleQueue()
        )
        self.files = OpenFiles(settings.open_files_max)
        self._late: dict[str, Adopt] = {}  # not opened yet, on a full disk perhaps
        self._targets: dict[str, Position] = {}  # where each stream ends for a stop
        self._waiting_streams: dict[str, Adopt] = {}  # waiting for an earlier stream of their run
        self._broken: dict[str, Adopt] = {}  # not opened because of an internal error
        self.internal_errors = 0
        self._retry_waiting = False
        self._stopping: Stop | None = None
        self._pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix=f"{name}-work")
        self._media_pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix=f"{name}-media")
        self._syncers = ThreadPoolExecutor(max_workers=4, thread_name_prefix=f"{name}-sync")
        self._rewriters = ThreadPoolExecutor(max_workers=4, thread_name_prefix=f"{name}-rewrite")
        self._next_commit = self._next_tick = self._next_lock_look = self._next_full_commit = 0.0
        self._all_asleep = False
        self._spool = -1  # descriptor of the folder of our streams, valid whatever takes its name meanwhile
        self._first = 0  # stream that is next
        self._fault_log = FaultLog()
        self._unfinished = False  # the last commit had no time for all of its steps

    @property
    def runs(self) -> dict[str, RunRecord]:
        """Records of the runs whose streams are here, by run id."""
        return self._registry.records

    def put(self, item: StreamHint | Flush | Adopt | Stop) -> None:
        """Queue something. Never blocks."""
        if not isinstance(item, StreamHint) or self._queue.qsize() <= QUEUE_MAX_ITEMS:
            self._queue.put(item)

    def run(self) -> None:
        """Serve until stopped; an internal error stops the agent, which is started again."""
        try:
            with closing(AgentDatabase(self._places.database)) as self._database:
                self._serve()
        except sqlite3.Error as error:
            _log.error("agent.db failed: %s; the agent stops, rows stay in the spool", error)
            self._on_failure()
        except Exception:  # noqa: BLE001 - the top of a thread
            _log.exception("volume thread failed; the agent stops and replays on the next start")
            self._on_failure()
        finally:
            self.files.close_all()
            self._writers.close()
            if self._spool >= 0:
                os.close(self._spool)
            self.through.set()
            for wait in (False, True):  # this thread outlives theirs, so that the lock is held until they end
                for pool in (self._pool, self._media_pool, self._rewriters, self._syncers):
                    pool.shutdown(wait=wait, cancel_futures=True)

    def _serve(self) -> None:
        self._widener = Widener(
            self._rewriters, self._database, lambda stream: self._queue.put(RewriteDone(stream))
        )
        self._jobs = JobQueue(
            self._pool, self._media_pool, self._places, self._kinds,
            lambda: self._queue.put(JobsDone()), self._broken_job,
        )  # fmt: skip
        self._flushes = FlushWaiters(self._database, self._jobs)
        self._committer = Committer(self._database, self.files, self._syncers)
        while not self._finished():
            self._turn()
        self.commit_cycle()

    def _turn(self) -> None:
        now = time.monotonic()
        self.turn, self.at = now, ""
        due = self._next_tick if self._all_asleep else min(self._next_tick, self._next_commit)
        busy = self._take_queue(max(0.0, due - now))
        now = time.monotonic()
        asked = self._flushes.fresh
        if now >= self._next_tick or asked or self._stopping is not None:
            busy |= self._look_at_all()
            self._next_tick = self._next_lock_look if self._all_asleep else now + TICK_S
        now = time.monotonic()
        if now >= self._next_commit or asked:
            again = self.commit_cycle()
            rest_s = self._settings.commit_interval_s
            rest_s = min(rest_s, FLUSH_TICK_S) if self._unfinished else rest_s
            self._next_commit = 0.0 if again else time.monotonic() + rest_s
            if self._flushes:
                self._next_tick = self._next_commit = min(self._next_commit, time.monotonic() + FLUSH_TICK_S)
        if busy:
            self._next_tick = 0.0
        elif self._stopping is not None:
            time.sleep(DRAIN_POLL_S)

    def _finished(self) -> bool:
        if self._stopping is None:
            return False
        if time.monotonic() > self._stopping.deadline:
            return True
        return all(
            stream.removed or stream.parked or stream.all_durable >= self._targets[stream.name]
            for stream in self.streams.values()
        )

    def _take_queue(self, wait: float) -> bool:
        taken = 0
        while taken < TURN_ITEMS and (not taken or time.monotonic() < self._next_commit):
            try:
                item = self._queue.get(timeout=wait) if wait > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            wait = 0.0
            taken += 1
            if isinstance(item, StreamHint):
                self._follow_hint(item)
            elif isinstance(item, Flush):
                self._flushes.add(item)
                if (asked := self.streams.get(item.stream)) is not None:
                    asked.wake()  # what its client sent may take more than this look
                    self._look(asked)
            elif isinstance(item, Adopt):
                self._adopt(item)
            elif isinstance(item, JobsDone):
                self._collect_jobs()
            elif isinstance(item, RewriteDone):
                self._look(self.streams.get(item.stream))
            else:
                self._stopping = item
                self._targets = {stream.name: stream.end() for stream in self.streams.values()}
        return bool(taken) and not self._queue.empty()

    def _follow_hint(self, hint: StreamHint) -> None:
        stream = self.streams.get(hint.stream)
        if stream is None:
            return
        stream.heard(time.monotonic())
        if self._all_asleep:  # what follows without a message is seen at the next tick
            self._all_asleep, self._next_tick = False, min(self._next_tick, stream.last_hint + TICK_S)
        if hint.end > stream.position:
            self._look(stream)

    def _adopt(self, item: Adopt) -> None:
        self._waiting_streams.pop(item.stream, None)
        if item.stream in self.streams or item.stream in self._broken:
            return
        self.at = item.root
        try:
            self._take_up(item)
        except StreamNotReadyError as error:
            self._late[item.stream] = item
            self.faults[item.stream] = str(error)
        except OF_ALL:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, others are to be taken in
            self._late.pop(item.stream, None)
            self._broken[item.stream] = item
            why = self._internal_error(item.stream, error)
            self.faults[item.stream] = f"stream {item.stream} waits: {why}"
        else:
            self._look(self.streams.get(item.stream))

    def _take_up(self, item: Adopt) -> None:
        if self._spool < 0:
            self._spool = open_spool(item.folder.parent)
        stream, waits = open_stream(item, self._adjust), None
        if stream is not None:
            waits = waits_behind(stream, self.streams.values())
            if waits is None:
                align_outputs(stream, self._database, self.files)
        self._retry_waiting |= self._late.pop(item.stream, None) is not None
        drop_faults(self.faults, item.stream)
        if stream is None:
            self._on_done(item.stream)
            return
        if waits is not None:
            self._waiting_streams[item.stream] = item
            if waits:
                self.faults[item.stream] = waits
            return
        self._targets.setdefault(item.stream, Position(0, 0))
        self._registry.opened(stream, self._database, time.time())
        if self._replication is not None:
            self._replication.run_opened(stream.opening)
        self._jobs.restore(stream.name, self._database)
        self.streams[item.stream] = stream
        if (stream.opening.primary or stream.opening.ends_part) and not stream.writer_gone:
            self._writers.watch(stream.name, stream.folder, stream.opening.pid)

    def _forget_broken(self) -> None:
        """Drop streams that could not be opened and are gone from the spool (`rla-agent forget`)."""
        for name in [name for name, adopt in self._broken.items() if not adopt.folder.exists()]:
            del self._broken[name]
            drop_faults(self.faults, name)
            self._on_done(name)

    def _collect_jobs(self) -> None:
        if self._jobs.collect():
            self._next_commit = 0.0  # their rows go, and what waits behind them starts

    def _look_at_all(self) -> bool:
        busy = False
        now = time.monotonic()
        thorough = now >= self._next_lock_look or self._stopping is not None  # ended by now
        if thorough:
            self._next_lock_look = now + LOCK_LOOK_S
            self._forget_broken()
            self._writers.look(now)
        waiting = self._waiting_streams if thorough or self._retry_waiting else {}
        self._retry_waiting = False
        for adopt in [*self._late.values(), *waiting.values()]:
            self._adopt(adopt)
        all_asleep = not self._late
        streams = list(self.streams.values())
        first, self._first = self._first % max(1, len(streams)), 0
        for count, stream in enumerate(streams[first:] + streams[:first], start=1):
            if busy and time.monotonic() >= self._next_commit:
                self._first, all_asleep = first + count - 1, False  # the others after this commit
                break
            sleeps = now - stream.last_hint > ASLEEP_S
            if stream.asleep and not thorough and sleeps:
                continue
            if not stream.update_asleep(thorough=thorough):
                busy |= self._look(stream)
            all_asleep &= stream.asleep and sleeps
        self._all_asleep = all_asleep
        self._collect_jobs()
        return busy

    def _look(self, stream: Stream | None) -> bool:
        """Read what a stream has, up to a bound; True when there is more."""
        if stream is None:
            return False
        self.at = stream.opening.root
        try:
            return self._turn_of(stream)
        except OF_ALL:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, others are to be taken in
            stream.handle(StreamEvent.FAULT, self._internal_error(stream.name, error))
            for output in stream.outputs:
                self._widener.forget(output, self.files)
            return False

    def _internal_error(self, name: str, error: Exception) -> str:
        """Count and log an internal error with one stream; returns the message for `status`."""
        self.internal_errors += 1
        _log.error("internal error with stream %s", name, exc_info=error)
        return (
            f"internal error; retried when the agent starts again, and its rows stay in the spool: {error!r}"
        )

    def _broken_job(self, name: str, kind: str, error: Exception) -> str:
        why = f"job {kind!r} of stream {name} waits: {self._internal_error(name, error)}"
        self.faults[f"{name}/{kind}"] = why
        return why

    def _turn_of(self, stream: Stream) -> bool:
        if (stream.parked or stream.unread) and self._given_up(stream):
            discard_stream(stream)
        if stream.parked and not root_is_back(stream, self._database, self.files, self.faults):
            return False
        if not stream.writer_gone and writer_alive(stream.folder, self._spool) is False:
            stream.writer_left(self._writers.end(stream.name))  # before reading
        more = not stream.new_files  # a file that cannot be written yet holds the stream up
        until = time.monotonic() + TURN_S
        while more and (more := stream.read_more(self.files)) and time.monotonic() < until:
            pass
        self._serve_outputs(stream)
        if look_for_item(stream, self.files, self._widener):
            return False
        now = time.monotonic()
        more_files = keep_new_files(stream, self.faults, now, now + TURN_S)
        return (
            more_files
            or (more and not stream.new_files)
            or any(not output.blocked for output in stream.lagging)
        )

    def _stands(self, stream: Stream) -> bool | None:
        """Whether a stream is in the spool that we serve; None while its path does not lead there."""
        try:
            held = os.stat(stream.name, dir_fd=self._spool, follow_symlinks=False)
        except FileNotFoundError:
            return False if os.fstat(self._spool).st_nlink else None  # the whole spool was deleted
        except OSError:
            return None
        with suppress(OSError):
            return True if os.path.samestat(held, os.stat(stream.folder)) else None
        return None

    def _given_up(self, stream: Stream) -> bool:
        """Whether somebody deleted a stream, and no writer has put it back within LOCKLESS_S."""
        if self._stands(stream) is not False:
            stream.seen()
            return False
        missing_s = stream.missing_for(time.monotonic())
        return bool(stream.parked) or stream.writer_gone or missing_s > LOCKLESS_S

    def _serve_outputs(self, stream: Stream) -> None:
        now = time.monotonic()
        awaited = self._flushes.awaits(stream.name)
        hurry = stream.writer_gone or self._stopping is not None or awaited
        for output in stream.outputs:
            output.may_retry(now)
            if output.state is OutputState.NEW and not output.error:
                try:
                    output.try_begin(self.files)
                except ItemGoneError:
                    stream.handle(StreamEvent.MISSED)
                    return
            self._widener.serve(stream, output, self.files, hurry=hurry)
            if output.position < stream.position:
                stream.catch_up(output, self.files, time.monotonic() + TURN_S)
                stream.touch()

    def commit_cycle(self) -> bool:
        """Make everything that was read durable, then do whatever had to wait for that.

        Returns:
            Whether jobs wait for another one.
        """
        self._unfinished = False
        began, again = time.monotonic(), False
        wall = time.time()
        self.at = ""
        # 1. streams with something to commit; those with a missing item are decided on first
        dirty = [
            stream
            for stream in self.streams.values()
            if stream.dirty
            and not stream.broken
            and not (look_for_item(stream, self.files, self._widener) or stream.parked)
        ]
        everything = began >= self._next_full_commit or self._stopping is not None
        if everything:
            self._next_full_commit = began + LOCK_LOOK_S
        # 2. what the transaction stores beside their positions: records of runs, firings, jobs
        changes = CommitChanges()
        of_interest = self.streams.values() if everything else dirty
        for name, losses in self._jobs.take_losses().items():
            self._registry.lose(self.streams[name].opening.run, losses)
        self._registry.follow(of_interest, dirty, wall, self._settings.stall_s, changes)
        self._jobs.add_changes(
            (job for stream in dirty if not stream.new_files for job in stream.new_jobs), changes
        )
        # 3. files, then the transaction, then passed segments; else all of it stays for the next cycle
        if self._committer.commit_streams(dirty, changes, self.faults):
            changed = self._registry.stored()
            # 4. jobs start whose rows are stored, and blobs go of those whose rows are gone
            again = self._jobs.start(lambda name: job_context(self.streams.get(name)))
            # 5. flushes are answered
            coming = self._waiting_streams.keys() | self._late.keys()
            self._flushes.answer(self.streams, coming)
            # 6. run.json, the last one before a stream goes
            records = list(self.runs.values()) if everything else changed
            until = time.monotonic() + TURN_S
            left = self._registry.write_files(records, wall, until)
            # 7. replication is notified, after run.json: without it an item could not be attributed
            if self._replication is not None:
                self._replication.committed(dirty)
            # 8. streams that were read to their end go
            gone, more = self._end_streams(wall, time.monotonic() + TURN_S)
            self._unfinished = left or more
            if gone or everything:
                self._registry.forget_ended(self.streams.values())
            self.commit_lag_s = time.monotonic() - began
        if everything:
            self._log_faults(began)
        if self._validates:
            self._registry.validate(self.streams.values())
            for stream in self.streams.values():
                stream.validate()
        return again

    def _log_faults(self, now: float) -> None:
        errors = [error for stream in self.streams.values() for error in stream.errors]
        for level, line in self._fault_log.look(now, [*self._all_faults(), *errors]):
            _log.log(level, "%s", line)

    def _all_faults(self) -> list[str]:
        return [*self.faults.copy().values(), *self._registry.unwritten.copy().values()]

    def _end_streams(self, wall: float, until: float) -> tuple[int, bool]:
        """Delete streams that were read to their end, until a moment (monotonic); at least one.

        Returns:
            How many were deleted, and whether time ran out before the last.
        """
        before = len(self.streams)
        for stream in list(self.streams.values()):
            gone = before - len(self.streams)
            if gone and time.monotonic() > until:
                return gone, True
            if not self._may_end(stream):
                continue
            try:
                sweep_fork_copies(stream.folder.parent, stream.name, stream.opening)
                remove_durably(stream, self._database, wall)
            except (OSError, sqlite3.OperationalError) as error:
                self.faults[stream.name] = f"stored to its end, but not removed yet: {error}"
                if stream.folder.exists():
                    if isinstance(error, sqlite3.OperationalError):
                        return gone, False  # each of the others would wait for whoever holds agent.db
                    continue
            close_files(stream, self.files)
            drop_faults(self.faults, stream.name)
            self._targets.pop(stream.name, None)
            if not stream.removed:
                self._flushes.ended(stream.name)
            del self.streams[stream.name]
            self._writers.end(stream.name)
            self._on_done(stream.name)
            if self._replication is not None:
                self._replication.run_ended(stream.opening)
            self._pool.submit(sweep_after, self._places, stream.opening)
            self._retry_waiting, self._next_tick = True, 0.0
        return before - len(self.streams), False

    def _may_end(self, stream: Stream) -> bool:
        """Whether all of a stream is in its item, and its run's last state is in run.json."""
        if not stream.writer_gone or stream.dirty or stream.parked:
            return False
        if not self._registry.is_written(stream.opening.run):
            return False
        stands = self._stands(stream)
        if stands is None or stream.lagging or (stands and not stream.at_end):
            return False
        return not self._jobs.pending(stream.name, media=True)

    def snapshot(self) -> dict[str, Any]:
        """Plain data for `status`; called from any thread."""
        streams = list(self.streams.values())
        unwritten = {f"{run}/run.json": why for run, why in self._registry.unwritten.copy().items()}
        roots = sorted({stream.opening.root for stream in streams})[:MAX_NAMED]
        return {
            "name": self.name,
            "commit_s": round(self.commit_lag_s, 4),
            "last_turn_s": round(time.monotonic() - self.turn, 3),
            "roots": [self.at] if self.at else roots,
            "open_files": len(self.files),
            "internal_errors": self.internal_errors,
            "faults": dict(self.faults) | unwritten,
            "runs": {run.run: run for run in list(self.runs.values())},
            "streams": [stream.snapshot() for stream in streams],
        }


def stop_volumes(volumes: Collection[Volume], deadline: float, jobs_s: float) -> None:
    """Have volumes read what is there, commit and end.

    Args:
        volumes: one that is still alive afterwards has threads that write.
        deadline: of reading (monotonic).
        jobs_s: what running jobs get beyond the end of reading.
    """
    for volume in volumes:
        volume.put(Stop(deadline))
    last = deadline + LAST_COMMIT_S
    for volume in volumes:
        volume.through.wait(max(0.0, last - time.monotonic()))
    last = min(last, time.monotonic() + jobs_s)
    for volume in volumes:
        volume.join(max(0.0, last - time.monotonic()))
