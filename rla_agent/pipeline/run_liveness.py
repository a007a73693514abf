"""Liveness of a run, derived from its stream."""

from __future__ import annotations

import logging
from dataclasses import replace

from rla_agent.model.process_ending import WriterEnd
from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RunEvent, closed_as
from rla_agent.pipeline.part_liveness import follow_part
from rla_agent.pipeline.stream import Stream
from rla_client.contract.spool.protocol import HANDED_OVER

_log = logging.getLogger("rla_agent.pipeline.run_liveness")


def follow(  # noqa: PLR0911 - one return for each way a run can stand
    stream: Stream, record: RunRecord, now: float, stall_s: float
) -> RunRecord:
    """The run's record after what was taken in since the last call."""
    record = _counted(stream, record).with_stream(stream.name)
    if stream.removed:
        return record.after(RunEvent.ITEM_GONE, now, f"{stream.opening.log_folder} was removed")
    if stream.opening.part:
        return follow_part(stream, record, now)
    if not stream.opening.primary:
        return record
    if stream.closed is not None:
        if stream.closed.state == HANDED_OVER:
            return record  # another stream of the same run continues it
        return record.after(closed_as(stream.closed.state), stream.closed.timestamp, stream.closed.reason)
    if stream.writer_gone:
        if stream.parked or not stream.read_through:
            return record  # its closing record may still come
        return _killed(record, stream.writer_end, now)
    quiet_since = max(record.last_row or 0.0, record.reopened or record.opened)
    own_s = stream.opening.stall_s
    stall_s = stall_s if own_s is None else own_s
    if now - quiet_since > stall_s:
        return record.after(RunEvent.SILENT, now, f"no row for {stall_s:g} s")
    return record


def _killed(record: RunRecord, end: WriterEnd, now: float) -> RunRecord:
    after = record.after(RunEvent.WRITER_GONE, now, end.words)
    if after is record or end.ending is None:
        return after
    return replace(after, exit_code=end.ending.code, signal=end.ending.signal)


def _counted(stream: Stream, record: RunRecord) -> RunRecord:
    """The record with the rows and marks taken in since the last call.

    Not while a file, a data root that is away or a fault of the agent holds the stream up: its position is
    not stored then, and a restart counts again.
    """
    if stream.new_files or stream.root_away or stream.broken or stream.parked:
        return record
    record = record.taken_in(stream.name, (stream.position.number, stream.position.offset))
    new = stream.drain_new()
    if new.last is not None:
        if stream.opening.primary or stream.opening.part:
            record = record.rows_seen(new.rows, new.last.step, new.last.timestamp)
        else:
            record = replace(record, rows=record.rows + new.rows)
    if new.damaged_bytes:
        _log.warning("%d bytes of stream %s are damaged and held no record", new.damaged_bytes, stream.name)
        record = replace(record, damaged=record.damaged + new.damaged_bytes)
    if new.lost_rows or new.lost_others or new.losses:
        record = record.losing(new.lost_rows, new.lost_others, new.losses)
    return record
