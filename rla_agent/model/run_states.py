"""State table of runs. Pure.

A run, as `status` and run.json show it, bears every event in every state:

running      rows come, or may come
stalled      the writer lives and no row came for `stall_s`
finished     the program closed the run or ended without error
interrupted  it was told to stop, by Ctrl-C or another signal, and ended: by the exception, by an exit status
             that names the signal (130, 143), or in any other way under `rla-agent run`, which passed it on
failed       an exception ended it, or under `rla-agent run` an exit code other than 0
killed       the writer is gone without a word: SIGKILL, SIGTERM, OOM, os._exit
removed      the item folder was taken away under a run that was still writing
"""

from __future__ import annotations

from enum import Enum


class RunState(str, Enum):
    """State of a run; the value is what run.json and `status --json` show."""

    RUNNING = "running"
    STALLED = "stalled"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    KILLED = "killed"
    REMOVED = "removed"


class RunEvent(Enum):
    """What can happen to a run."""

    ROW = "row"
    SILENT = "silent"
    CLOSED_FINISHED = "closed finished"
    CLOSED_INTERRUPTED = "closed interrupted"
    CLOSED_FAILED = "closed failed"
    WRITER_GONE = "writer gone"
    ITEM_GONE = "item gone"
    REOPENED = "reopened"


LIVE = (RunState.RUNNING, RunState.STALLED)
CLOSED = {  # by the program: what its closing frame says
    RunEvent.CLOSED_FINISHED: RunState.FINISHED,
    RunEvent.CLOSED_INTERRUPTED: RunState.INTERRUPTED,
    RunEvent.CLOSED_FAILED: RunState.FAILED,
}
ENDED = (*CLOSED.values(), RunState.KILLED, RunState.REMOVED)
RUN_TRANSITIONS: dict[tuple[RunState, RunEvent], RunState] = {
    **{(state, RunEvent.ROW): RunState.RUNNING for state in LIVE},
    **{(state, RunEvent.ROW): state for state in ENDED},  # a late row changes no end
    **{(state, RunEvent.SILENT): RunState.STALLED for state in LIVE},
    **{(state, RunEvent.SILENT): state for state in ENDED},
    **{(state, event): end for event, end in CLOSED.items() for state in LIVE},
    **{(state, event): state for event in CLOSED for state in ENDED},
    **{(state, RunEvent.WRITER_GONE): RunState.KILLED for state in LIVE},
    **{(state, RunEvent.WRITER_GONE): state for state in ENDED},  # the usual order: closed, then gone
    **{(state, RunEvent.ITEM_GONE): RunState.REMOVED for state in RunState},
    **{(state, RunEvent.REOPENED): RunState.RUNNING for state in RunState},
}


def closed_as(state: str) -> RunEvent:
    """The event of a closing frame that says `state`; a word that this agent does not know is finished."""
    return next((event for event, end in CLOSED.items() if end.value == state), RunEvent.CLOSED_FINISHED)
