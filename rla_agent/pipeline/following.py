"""What a stream's records, lock and item say about its run: rows, marks, and how it stands."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from rla_agent.model.run_states import RunEvent, RunRecord, closed_as
from rla_agent.model.validate import MAX_TIME_S
from rla_agent.pipeline.stream import Stream

HANDED_OVER = "handed over"
REPLICATE_NOW = "replicate_now"  # a mark of sync_log_file
MAX_PARENT_FIELDS, MAX_PARENT_TEXT = 16, 1000

_log = logging.getLogger("rla_agent.pipeline.following")


def new_run_record(stream: Stream) -> RunRecord:
    """The record of a run that nobody knows yet."""
    opening = stream.opening
    began, ran_s = _earlier(opening.raw.get("continues") or opening.raw.get("earlier"))
    return RunRecord(
        run=opening.run,
        root=opening.root,
        table=opening.table,
        index=opening.index,
        log_folder=opening.log_folder,
        host=opening.host,
        user=opening.user,
        pid=opening.pid,
        opened=opening.opened if began is None else began,
        reopened=None if began is None else opening.opened,
        ran_before_s=ran_s,
        client=opening.client,
        config=opening.config,
        launch=str(opening.raw.get("launch", "")),
        parent=_parent(opening.raw.get("parent")),
        extra={
            "run_key": str(opening.raw.get("run_key", ""))[:200],
            "replicate": opening.raw.get("replicate", True) is not False and not opening.offline,
        },
        streams=(stream.name,),
    )


def _earlier(raw: object) -> tuple[float | None, float]:
    """When a run began that this agent does not know (any more), and how long it ran, as its client says."""
    if not isinstance(raw, dict):
        return None, 0.0
    began, ran_s = (
        value if isinstance(value, int | float) and abs(value) < MAX_TIME_S else None
        for value in (raw.get("began"), raw.get("ran_s"))
    )
    return began, max(ran_s or 0.0, 0.0)


def _parent(raw: object) -> dict[str, Any] | None:
    """The run that an opening frame says to go on from: a few plain values."""
    if not isinstance(raw, dict):
        return None
    plain = {str(name)[:40]: value for name, value in list(raw.items())[:MAX_PARENT_FIELDS]}
    return {
        name: value[:MAX_PARENT_TEXT] if isinstance(value, str) else value
        for name, value in plain.items()
        if value is None or isinstance(value, str | bool | int | float)
    }


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
            return record  # another stream of the same run goes on
        return record.after(closed_as(stream.closed.state), stream.closed.timestamp, stream.closed.reason)
    if stream.writer_gone:
        if stream.parked or not stream.read_through:
            return record  # its last word may still come
        return record.after(RunEvent.WRITER_GONE, now, "the process ended without closing the run")
    quiet_since = max(record.last_row or 0.0, record.reopened or record.opened)
    stall_s = stream.opening.setting("stall_s", stall_s)
    if now - quiet_since > stall_s:
        return record.after(RunEvent.SILENT, now, f"no row for {stall_s:g} s")
    return record


def _counted(stream: Stream, record: RunRecord) -> RunRecord:
    """The record with the rows and marks taken in since the last call.

    Not while a file, a data root that is away or a fault of the agent holds the stream up: its position is
    not stored then, and a restart counts again.
    """
    if stream.new_files or stream.root_away or stream.broken:
        return record
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
