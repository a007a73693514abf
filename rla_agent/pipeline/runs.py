"""Records of the runs whose streams one volume takes in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rla_agent.model.run_states import RunEvent, RunRecord
from rla_agent.pipeline.fencing import EPOCH, GONE_ON
from rla_agent.pipeline.following import follow, new_run_record
from rla_agent.pipeline.observers import RunObserver
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase, Changes


class RunRegistry:
    """Runs by id; streams of one run share its record."""

    def __init__(self, alerting: RunObserver | None = None) -> None:
        self.records: dict[str, RunRecord] = {}
        self._unstored: dict[str, None] = {}  # changed since agent.db has them, in order
        self._alerting = alerting
        self._fired: list[Stream] = []  # whose firings are in the commit under way

    def opened(self, stream: Stream, database: AgentDatabase, now: float) -> None:
        """A stream is taken in: its run is known here, in agent.db, or new; a run that ended is reopened."""
        opening = stream.opening
        known = self.records.get(opening.run)
        if known is None:
            saved = database.run(opening.run)
            known = RunRecord.from_plain(saved) if saved else new_run_record(stream)
        if opening.primary and not known.live and stream.name not in known.streams:
            known = replace(known.gone_on(opening.opened, now), pid=opening.pid, rows=stream.rows)
        if opening.primary:
            known = replace(known, extra={**known.extra, EPOCH: opening.epoch})
        elif stream.aside:
            known = known.after(RunEvent.WRITER_GONE, now, GONE_ON)
        self.records[opening.run] = known
        self._unstored[opening.run] = None
        if self._alerting is not None:
            self._alerting.run_opened(stream)

    def follow(self, streams: Collection[Stream], now: float, stall_s: float, changes: Changes) -> None:
        """Bring the records up to what the streams took in.

        What changed goes into `changes` at each call until `stored` says that a commit holds it.
        """
        for stream in streams:
            before = self.records[stream.opening.run]
            after = follow(stream, before, now, stall_s)
            if after is not before:
                self.records[after.run] = after
                self._unstored[after.run] = None
        for run in self._unstored:
            record = self.records[run]
            changes.runs.append((run, now, record.live, record.to_plain(now)))
        if self._alerting is not None:
            self._fired = self._alerting.add_changes(streams, changes)

    def stored(self) -> list[RunRecord]:
        """Note that agent.db has all records; those that it got now."""
        changed = [self.records[run] for run in self._unstored]
        self._unstored.clear()
        for stream in self._fired:
            if stream.watch is not None:
                stream.watch.firings.clear()
        return changed

    def forget_ended(self, streams: Collection[Stream]) -> list[str]:
        """Drop runs that ended and have no stream left; their ids."""
        writing = {stream.opening.run for stream in streams}
        gone = [run for run, record in self.records.items() if not record.live and run not in writing]
        for run in gone:
            del self.records[run]
            self._unstored.pop(run, None)
        return gone
