"""Durable job queue of a volume.

A JOB frame becomes a row of agent.db in the transaction that moves the stream's position past it; then its
runner starts in a pool (media in a pool of their own, as a video takes minutes). Jobs of one stream and kind
run in order. When one is done its row is deleted with the next commit; the stream's spool folder (with its
blobs) stays until no job is left.

A job that fails permanently is dropped, and counted among its run's losses; after a crash it runs again, so
runners are idempotent. An internal error in a runner stops that job alone until the agent's next start;
`status` names it. A job that MAX_TRIES starts began and did not finish fails permanently. Jobs of held kinds
stay undone, with their payloads: a drain of a copied spool holds those that would run its code.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rla_agent.store.agent_db import AgentDatabase, CommitChanges, JobRow
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.safe_paths import held_folder, is_there
from rla_client.contract.safe_names import component_problem
from rla_client.contract.spool.losses import Loss, of_job
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import unpack
from rla_client.contract.spool.segments import BLOBS_NAME

MAX_TRIES = 10  # an upgrade may fix it, and a machine may fail meanwhile; but a crash loop must end
RETRY_S = 5.0  # between attempts of a job that failed for a reason that may pass (a full disk)
_log = logging.getLogger("rla_agent.jobs.job_queue")


class RetryLaterError(Exception):
    """The job could not be done now, e.g. for lack of space; it is retried."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Context of a runner beside the job's own fields.

    Attributes:
        opening: of the stream that asked.
        blobs: folder of the stream's payloads.
        removed: the item counts as removed, and not as missing with its data root.
        replayed: agent.db was lost, so finished jobs are requested again.
    """

    opening: Opening
    blobs: Path
    removed: bool = False
    replayed: bool = False

    def done_before(self, blob: str | None) -> bool:
        """Whether a job was done, or dropped, by an earlier agent, as its payload was deleted."""
        return self.replayed and blob is not None and not is_there(self.blobs / blob)


@dataclass(frozen=True, slots=True)
class JobKind:
    """Execution of one kind of jobs.

    Attributes:
        run: does the work; raises RetryLaterError, or RlaError / OSError when it cannot be done.
        media: a plain `flush` does not wait for it.
        held: they are not run; they stay, with their payloads.
    """

    run: Callable[[dict[str, Any], JobContext], None]
    media: bool
    held: bool = False


@dataclass(slots=True)
class _Pending:
    """A job in agent.db; its attributes are written by its own methods alone, named behind each."""

    #: As it is to be in agent.db. `count_try`, `postpone`.
    row: JobRow
    #: The start of this agent is among its tries. `count_try`.
    counted: bool = True
    #: Its row in agent.db is as it is here. `count_try`, `postpone`, `note_stored`.
    stored: bool = True
    #: When it may be tried again; monotonic seconds. `postpone`.
    not_before: float = 0.0
    #: Why it could not be done at its last attempt, for people; empty: there was none. `postpone`, `stop`.
    waits_for: str = ""
    #: Of its runner; None: none is at it. `begin`, `take_error`.
    future: Future[None] | None = None
    #: Done, or dropped: its row goes with the next commit. `end`.
    done: bool = False
    #: A fault of the agent stopped it until the agent's next start. `stop`.
    broken: bool = False

    def count_try(self) -> bool:
        """Count this start of the agent, before the job begins; False after too many tries."""
        self.counted = True
        if self.row.tries >= MAX_TRIES:
            return False
        self.row, self.stored = replace(self.row, tries=self.row.tries + 1), False
        return True

    def note_stored(self) -> None:
        """Note that a commit has stored its row."""
        self.stored = True

    def begin(self, future: Future[None]) -> None:
        """Note its runner."""
        self.future = future

    @property
    def has_run(self) -> bool:
        """Whether its runner has ended, with an outcome that was not taken."""
        return self.future is not None and self.future.done() and not self.done

    def take_error(self) -> BaseException | None:
        """Take the error of the runner that ended."""
        ended, self.future = self.future, None
        return None if ended is None else ended.exception()

    def postpone(self, why: str, until: float) -> bool:
        """Postpone it; returns whether its row changed: this is an outcome, so earlier tries do not count.

        Args:
            why: for people.
            until: monotonic seconds.
        """
        self.not_before, self.waits_for = until, why
        if not self.row.tries:
            return False
        self.row, self.stored = replace(self.row, tries=0), False
        return True

    def stop(self, why: str) -> None:
        """Stop it, after an internal error, until the agent's next start."""
        self.waits_for, self.broken = why, True

    def end(self) -> None:
        """Note that it is done, or dropped."""
        self.done = True


class JobQueue:
    """Jobs of one volume."""

    def __init__(
        self,
        executor: Executor,
        media_executor: Executor,
        places: Places,
        kinds: Mapping[str, JobKind],
        wake: Callable[[], None],
        internal_error: Callable[[str, str, Exception], str],
    ) -> None:
        self._executor = executor
        self._media_executor = media_executor  # a video takes minutes: no checkpoint waits for it
        self._places = places
        self._kinds = kinds
        self._wake = wake
        self._internal_error = internal_error  # (stream, kind, error) → message for `status`
        self._pending: dict[str, list[_Pending]] = {}
        self._storing: list[JobRow] = []
        self._failed: Counter[tuple[str, bool]] = Counter()  # (stream, media) → jobs dropped undone
        self._losses: dict[str, list[Loss]] = {}  # stream → those that no commit has yet

    def restore(self, stream: str, database: AgentDatabase) -> None:
        """Restore the jobs of a stream from agent.db."""
        rows = database.jobs_of(stream)
        if rows:
            self._pending[stream] = [_Pending(row, counted=False) for row in rows]

    def add_changes(self, new: Iterable[JobRow], changes: CommitChanges) -> None:
        """Put new and done jobs into a commit."""
        self._storing = list(new)
        changes.jobs.extend(self._storing)
        for name, pending in self._pending.items():
            changes.jobs.extend(job.row for job in pending if not (job.stored or job.done))
            changes.jobs_done.extend((name, job.row.position) for job in pending if job.done)

    def start(self, context_of: Callable[[str], JobContext | None]) -> bool:
        """Drop finished jobs after a commit, and start those that may start.

        Args:
            context_of: context of a stream's runners; None where its jobs must wait.

        Returns:
            Whether some start after another commit.
        """
        now, again = time.monotonic(), False
        for row in self._storing:
            self._pending.setdefault(row.stream, []).append(_Pending(row))
        self._storing = []
        for name in list(self._pending):
            drop_blobs(self._places, [job.row for job in self._pending[name] if job.done])
            left = [job for job in self._pending[name] if not job.done]
            if not left:
                del self._pending[name]
                continue
            self._pending[name] = left
            for job in left:
                job.note_stored()
            context = context_of(name)
            if context is None:
                continue
            busy: set[str] = set()
            for job in (job for job in left if not (job.broken or self._is_held(job.row.kind))):
                if job.row.kind not in busy and job.future is None and now >= job.not_before:
                    again |= not job.counted
                    self._begin(job, context)
                busy.add(job.row.kind)
        return again

    def _begin(self, job: _Pending, context: JobContext) -> None:
        """Start a job, or have its try counted first."""
        if job.counted:
            media = self._is_media(job.row.kind)
            executor = self._media_executor if media else self._executor
            future = executor.submit(run_job, self._kinds, job.row, context)
            job.begin(future)
            future.add_done_callback(lambda _: self._wake())
        elif not job.count_try():
            kind, stream = job.row.kind, job.row.stream
            _log.error(
                "job %r of %s is dropped: it was started %d times and never finished", kind, stream, MAX_TRIES
            )
            self._drop(job, f"{MAX_TRIES} starts of the agent did not finish it")

    def collect(self) -> list[str]:
        """Notice finished runners; returns the streams that need a commit."""
        changed: list[str] = []
        for name, pending in self._pending.items():
            for job in pending:
                if not job.has_run:
                    continue
                error = job.take_error()
                if isinstance(error, RetryLaterError):
                    if job.postpone(str(error), time.monotonic() + RETRY_S):
                        changed.append(name)
                    continue
                if isinstance(error, Exception) and not isinstance(error, (RlaError, OSError)):
                    job.stop(self._internal_error(name, job.row.kind, error))
                    continue
                if error is None:
                    job.end()
                else:
                    loss = self._drop(job, str(error))
                    _log.error("a job of %s failed and is dropped: %s", name, loss)
                changed.append(name)
        return changed

    def _drop(self, job: _Pending, why: str) -> Loss:
        job.end()
        row = job.row
        self._failed[row.stream, self._is_media(row.kind)] += 1
        fields = None
        with suppress(RlaError):  # of a row that makes no sense
            fields = unpack(row.fields)
        loss = Loss(*of_job(row.kind, fields), why)
        self._losses.setdefault(row.stream, []).append(loss)
        return loss

    def take_losses(self) -> dict[str, list[Loss]]:
        """What was dropped since the last call, by stream: for the commit that drops the jobs' rows, too."""
        taken, self._losses = self._losses, {}
        return taken

    def failed(self, stream: str) -> tuple[int, int]:
        """How many jobs of a stream were dropped undone: media, others."""
        return self._failed[stream, True], self._failed[stream, False]

    def forget(self, stream: str) -> None:
        """A stream is gone."""
        for media in (False, True):
            self._failed.pop((stream, media), None)

    def pending(self, stream: str, *, media: bool) -> bool:
        """Whether jobs of a stream are not done, or no record tells of them; media ones only if asked for."""
        return (media and stream in self._losses) or any(
            not job.done for job in self._jobs_of(stream, media=media)
        )

    def broken(self, stream: str, *, media: bool) -> bool:
        """Whether one of those will not be done before the agent's next start."""
        return any(job.broken for job in self._jobs_of(stream, media=media))

    def _jobs_of(self, stream: str, *, media: bool) -> Iterator[_Pending]:
        jobs = self._pending.get(stream, ())
        return (job for job in jobs if media or not self._is_media(job.row.kind))

    def left(self, stream: str) -> int:
        """How many jobs of a stream are not done; called from any thread, those of a commit included."""
        storing = sum(row.stream == stream for row in self._storing)
        return storing + sum(not job.done for job in list(self._pending.get(stream, ())))

    def held(self, stream: str) -> int:
        """How many jobs of a stream are not done because their kind is held."""
        return sum(self._is_held(job.row.kind) for job in list(self._pending.get(stream, ())))

    def wait_for(self, stream: str) -> list[str]:
        """Why jobs of a stream could not be done at their last attempt."""
        return [job.waits_for for job in list(self._pending.get(stream, ())) if job.waits_for]

    def _is_held(self, kind: str) -> bool:
        known = self._kinds.get(kind)
        return known is not None and known.held

    def _is_media(self, kind: str) -> bool:
        known = self._kinds.get(kind)
        return known is not None and known.media


def drop_blobs(places: Places, rows: Iterable[JobRow]) -> None:
    """Remove the payloads of jobs whose rows are gone; before that, a replay would need them."""
    for row in rows:
        fields = None
        with suppress(RlaError):  # of a row that makes no sense
            fields = unpack(row.fields)
        blob = fields.get("blob") if isinstance(fields, dict) else None
        if isinstance(blob, str) and component_problem(blob) is None:
            with suppress(OSError), held_folder(places.spool / row.stream, BLOBS_NAME) as blobs:
                (blobs / blob).unlink()


def run_job(kinds: Mapping[str, JobKind], row: JobRow, context: JobContext) -> None:
    """Run one job.

    Raises:
        RlaError: no runner knows its kind.
    """
    kind = kinds.get(row.kind)
    if kind is None:
        raise RlaError(f"no runner for jobs of kind {row.kind!r}")
    kind.run(unpack(row.fields), context)
