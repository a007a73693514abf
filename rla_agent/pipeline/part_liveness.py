"""Liveness of a part of a run.

It follows from the states of the part's processes, workers aside: running, closed in some state, or ended
without a last record. The part runs as long as one of them does, then has the worst of their states; a killed
process is named in either case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import CLOSED, RunEvent, RunState, closed_as
from rla_agent.pipeline.stream import Stream
from rla_client.contract.run_part import RANKS
from rla_client.contract.spool.protocol import HANDED_OVER

MAX_NAMED = 8  # processes, in the reason of a part's state
_WORST_FIRST = {
    RunState.KILLED: RunEvent.WRITER_GONE,
    RunState.FAILED: RunEvent.CLOSED_FAILED,
    RunState.INTERRUPTED: RunEvent.CLOSED_INTERRUPTED,
    RunState.FINISHED: RunEvent.CLOSED_FINISHED,
}


def follow_part(stream: Stream, record: RunRecord, now: float) -> RunRecord:
    """The record of a part after what was taken in of one of its streams since the last call."""
    if not stream.opening.ends_part:
        return record
    state, reason = _stands(stream)
    entry = {"state": state.value, "reason": reason, "rows": stream.rows, "lost": stream.lost[0]}
    former: dict[str, dict[str, Any]] = record.extra.get(RANKS) or {}
    if former.get(stream.opening.label) == entry:
        return record
    ranks = {**former, stream.opening.label: entry}
    record = replace(record, extra={**record.extra, RANKS: ranks})
    states = {RunState(one["state"]) for one in ranks.values()}
    worst = next((one for one in _WORST_FIRST if one in states), RunState.RUNNING)
    words = _named(ranks, worst)
    if RunState.RUNNING in states:
        return replace(record, reason=words)
    return replace(record.after(_WORST_FIRST[worst], now), reason=words)


def _stands(stream: Stream) -> tuple[RunState, str]:
    """State of the process of a stream, with the reason."""
    if stream.closed is not None and stream.closed.state != HANDED_OVER:
        return CLOSED[closed_as(stream.closed.state)], stream.closed.reason
    if stream.closed is None and stream.writer_gone and stream.read_through and not stream.parked:
        return RunState.KILLED, stream.writer_end.words
    return RunState.RUNNING, ""


def _named(ranks: dict[str, dict[str, Any]], state: RunState) -> str:
    """The processes in a state, with their reasons; empty for running or finished ones."""
    if state in {RunState.RUNNING, RunState.FINISHED}:
        return ""
    names = [
        f"{label}: {one['reason'] or state.value}"
        for label, one in ranks.items()
        if one["state"] == state.value
    ]
    more = f"; and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return "; ".join(names[:MAX_NAMED]) + more
