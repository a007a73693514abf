"""Flushes that wait until everything before a position is durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rla_agent.jobs.queue import JobQueue
from rla_agent.pipeline.commands import Flush
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase

NOTHING = (0, 0)
GONE_S = 10.0  # a client that still waits has asked again long before
KEPT_ENDED = 10_000  # names of streams that were taken in to their end


class FlushWaiters:
    """Flushes of one volume that were not answered yet."""

    def __init__(self, database: AgentDatabase, jobs: JobQueue) -> None:
        self._database = database
        self._jobs = jobs
        self._waiting: dict[tuple[bytes, str], tuple[Flush, float]] = {}
        self._ended: dict[str, None] = {}
        self.fresh = False  # something new was asked since the last commit

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flush: Flush) -> None:
        """Answer this one when its time has come."""
        known, _ = self._waiting.get((flush.peer, flush.stream), (None, 0.0))
        self.fresh |= known is None or (known.number, known.offset) != (flush.number, flush.offset)
        self._waiting[flush.peer, flush.stream] = flush, time.monotonic()

    def awaits(self, stream: str) -> bool:
        """Whether somebody waits for a stream."""
        return any(name == stream for _, name in self._waiting)

    def ended(self, stream: str) -> None:
        """A stream was taken in to its end and is gone."""
        self._ended[stream] = None
        self._jobs.forget(stream)
        if len(self._ended) > KEPT_ENDED:
            del self._ended[next(iter(self._ended))]

    def answer(self, streams: Mapping[str, Stream], coming: Callable[[str], bool]) -> None:
        """Answer what can be answered after a commit.

        Args:
            streams: those that are taken in now.
            coming: whether a stream that is not among them will be.
        """
        self.fresh = False
        since = time.monotonic() - GONE_S
        self._waiting = {
            key: (flush, asked)
            for key, (flush, asked) in self._waiting.items()
            if asked > since and not self._answered(flush, streams.get(flush.stream), coming)
        }

    def _answered(self, flush: Flush, stream: Stream | None, coming: Callable[[str], bool]) -> bool:
        if stream is None and coming(flush.stream):
            return False
        if stream is None:
            flush.answer(flush.stream in self._ended or self._database.is_done(flush.stream), NOTHING)
        elif stream.removed or stream.parked or self._jobs.broken(stream.name, media=flush.media):
            flush.answer(False, NOTHING)
        elif self._durable(stream, flush):
            media, others = self._jobs.failed(stream.name)
            flush.answer(True, (media, others + stream.given_up))
        else:
            return False
        return True

    def _durable(self, stream: Stream, flush: Flush) -> bool:
        passed = stream.all_durable >= (flush.number, flush.offset)
        return passed and not self._jobs.pending(stream.name, media=flush.media)
