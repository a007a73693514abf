"""Flushes that wait until everything before a position is durable."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rla_agent.jobs import JobDesk
from rla_agent.state import AgentDatabase
from rla_agent.stream import Stream
from rla_agent.volume_items import Flush


class FlushDesk:
    """Flushes of one volume that were not answered yet."""

    def __init__(self, database: AgentDatabase, jobs: JobDesk) -> None:
        self._database = database
        self._jobs = jobs
        self._waiting: list[Flush] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, flush: Flush) -> None:
        """Answer this one when its time has come."""
        self._waiting.append(flush)

    def awaits(self, stream: str) -> bool:
        """Whether somebody waits for a stream."""
        return any(flush.stream == stream for flush in self._waiting)

    def answer(self, streams: Mapping[str, Stream], coming: Callable[[str], bool]) -> None:
        """Answer what can be answered after a commit.

        Args:
            streams: those that are taken in now.
            coming: whether a stream that is not among them will be.
        """
        self._waiting = [
            flush for flush in self._waiting if not self._answered(flush, streams.get(flush.stream), coming)
        ]

    def _answered(self, flush: Flush, stream: Stream | None, coming: Callable[[str], bool]) -> bool:
        if stream is None and coming(flush.stream):
            return False
        if stream is None:
            flush.answer(self._database.is_done(flush.stream))
        elif stream.removed or stream.parked:
            flush.answer(False)
        elif self._durable(stream, flush):
            flush.answer(True)
        else:
            return False
        return True

    def _durable(self, stream: Stream, flush: Flush) -> bool:
        passed = stream.all_durable >= (flush.number, flush.offset)
        return passed and not self._jobs.pending(stream.name, media=flush.media)
