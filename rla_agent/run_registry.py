"""Records of the runs whose streams one volume takes in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rla_agent.following import follow, new_run_record
from rla_agent.runs import RunEvent, RunRecord
from rla_agent.state import AgentDatabase, Changes
from rla_agent.stream import Stream


class RunRegistry:
    """Runs by id; streams of one run share its record."""

    def __init__(self) -> None:
        self.records: dict[str, RunRecord] = {}

    def opened(self, stream: Stream, database: AgentDatabase, now: float) -> None:
        """A stream is taken in: its run is known here, in agent.db, or new; a run that ended is reopened."""
        opening = stream.opening
        known = self.records.get(opening.run)
        if known is None:
            saved = database.run(opening.run)
            known = RunRecord.from_plain(saved) if saved else new_run_record(stream)
        if opening.primary and not known.live and stream.name not in known.streams:
            known = replace(known.after(RunEvent.REOPENED, now), pid=opening.pid, rows=stream.rows)
        self.records[opening.run] = known

    def follow(self, streams: Collection[Stream], now: float, stall_s: float, changes: Changes) -> None:
        """Bring the records up to what the streams took in; what changed goes into a commit."""
        for stream in streams:
            before = self.records[stream.opening.run]
            after = follow(stream, before, now, stall_s)
            if after is not before:
                self.records[after.run] = after
                changes.runs.append((after.run, now, after.live, after.to_plain(now)))

    def forget_ended(self, streams: Collection[Stream]) -> list[str]:
        """Drop runs that ended and have no stream left; their ids."""
        writing = {stream.opening.run for stream in streams}
        gone = [run for run, record in self.records.items() if not record.live and run not in writing]
        for run in gone:
            del self.records[run]
        return gone
