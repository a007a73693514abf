"""Records of the runs whose streams one volume takes in: what records, lock and item say of each."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from rla_agent.model.run_states import RunEvent, RunRecord, closed_as
from rla_agent.pipeline.commands import RunObserver
from rla_agent.pipeline.fencing import EPOCH, GONE_ON
from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import AgentDatabase, Changes
from rla_client.contract.protocol import HANDED_OVER, REPLICATE_NOW

_log = logging.getLogger("rla_agent.pipeline.runs")


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
        elif stream.aside and known.extra.get(EPOCH, 0) <= opening.epoch + 1:  # none that is newer is here
            known = replace(known, extra={**known.extra, EPOCH: opening.epoch})
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


def new_run_record(stream: Stream) -> RunRecord:
    """The record of a run that nobody knows yet."""
    opening = stream.opening
    earlier = opening.earlier if opening.continues is None else opening.continues.earlier
    return RunRecord(
        run=opening.run,
        root=opening.root,
        table=opening.table,
        index=opening.index,
        log_folder=opening.log_folder,
        host=opening.host,
        user=opening.user,
        pid=opening.pid,
        opened=opening.opened if earlier.began is None else earlier.began,
        reopened=None if earlier.began is None else opening.opened,
        ran_before_s=earlier.ran_s,
        client=opening.client,
        config=opening.config,
        launch=opening.launch,
        parent=None if opening.parent is None else dict(opening.parent),
        extra={
            "run_key": opening.run_key,
            "replicate": opening.replicate and not opening.offline,
        },
        streams=(stream.name,),
    )


def follow(  # noqa: PLR0911 - one return for each way a run can stand
    stream: Stream, record: RunRecord, now: float, stall_s: float
) -> RunRecord:
    """The run's record after what was taken in since the last call."""
    record = _counted(stream, record).with_stream(stream.name)
    if stream.removed:
        return record.after(RunEvent.ITEM_GONE, now, f"{stream.opening.log_folder} was removed")
    if not stream.opening.primary:
        return record
    if stream.closed is not None:
        if stream.closed.state == HANDED_OVER:
            return record  # another stream of the same run continues
        return record.after(closed_as(stream.closed.state), stream.closed.timestamp, stream.closed.reason)
    if stream.writer_gone:
        if stream.parked or not stream.read_through:
            return record  # its last word may still come
        return record.after(RunEvent.WRITER_GONE, now, "the process ended without closing the run")
    quiet_since = max(record.last_row or 0.0, record.reopened or record.opened)
    own_s = stream.opening.stall_s
    stall_s = stall_s if own_s is None else own_s
    if now - quiet_since > stall_s:
        return record.after(RunEvent.SILENT, now, f"no row for {stall_s:g} s")
    return record


def _counted(stream: Stream, record: RunRecord) -> RunRecord:
    """The record with the rows and marks taken in since the last call.

    Not while a file, a data root that is away or a fault of the agent holds the stream up: its position is
    not stored then, and a restart counts again.
    """
    if stream.new_files or stream.root_away or stream.broken or stream.parked:
        return record
    record = record.taken_in(stream.name, (stream.position.number, stream.position.offset))
    if stream.new_rows and stream.last is not None:
        if stream.opening.primary:
            record = record.rows_seen(stream.new_rows, stream.last.step, stream.last.timestamp)
        else:
            record = replace(record, rows=record.rows + stream.new_rows)
        stream.new_rows = 0
    if stream.new_damaged:
        _log.warning("%d bytes of stream %s are damaged and held no record", stream.new_damaged, stream.name)
        record = replace(record, damaged=record.damaged + stream.new_damaged)
        stream.new_damaged = 0
    for mark in stream.marks:
        stream.replicate_now |= mark.name == REPLICATE_NOW
        lost = mark.data.get("records") if mark.name == "lost" and isinstance(mark.data, dict) else None
        if isinstance(lost, int):
            record = replace(record, lost=max(record.lost, lost))
    stream.marks.clear()
    return record
