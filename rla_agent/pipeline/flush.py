"""Pending flush requests of clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rla_agent.jobs.job_queue import JobQueue
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import AgentDatabase

NOTHING = (0, 0)
GONE_S = 10.0  # a client that still waits has asked again long before this
KEPT_ENDED = 10_000  # names of streams that were taken in to their end
# everything before the position is durable; counts of media and other files that were lost
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
        self.fresh = False  # a request came since the last commit

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flush: Flush) -> None:
        """Add a request, to be answered once everything before its position is durable."""
        of_stream = self._waiting.setdefault(flush.stream, {})
        known, _ = of_stream.get(flush.peer, (None, 0.0))
        self.fresh |= known is None or (known.number, known.offset) != (flush.number, flush.offset)
        of_stream[flush.peer] = flush, time.monotonic()

    def awaits(self, stream: str) -> bool:
        """Whether somebody waits for a stream."""
        return stream in self._waiting

    def ended(self, stream: str) -> None:
        """Note that a stream was read to its end and removed."""
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
