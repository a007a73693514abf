"""How a run stands, a stream towards its item, and an output towards its file. Pure: events in, states out.

One table for streams and outputs, and one for runs, says what follows what.

A stream's rows go from the spool into the files of an item. Whether they can is one of six states:

* TAKING_IN: as far as anybody knows the item is there.
* ITEM_MISSED: some access did not find the item. That alone says little: a data root that is moved,
  unmounted, or on a server that restarts looks the same for a moment. The next look decides.
* ROOT_AWAY: the data root is not there, or another one bears its name. Rows wait in the spool, and the
  outputs are brought in line with their files anew once it is back.
* ITEM_REMOVED: somebody removed the item, or gave the stream up. It has no outputs any more; what is
  left of it is read to the end, so that the spool gets rid of it, and dropped.
* PARKED: this release cannot read on (a frame of a later one, an item that makes no sense). Rows wait
  for another agent, or for `rla-agent forget`.
* BROKEN: a fault of the agent, met with this stream. What is in memory counts for nothing; the agent's
  next start tries again.

::

                     missed               removed
      TAKING_IN ---------------> ITEM_MISSED -------> ITEM_REMOVED
       |  |  ^                      |                      ^
       |  |  | root found           | root away            | given up (from every state)
       |  |  |                      v                      |
       |  |  +------------------ ROOT_AWAY ----------------+
       |  +----- root away ---------^
       +-------- refused --------> PARKED          fault: from every state to BROKEN

In ROOT_AWAY, PARKED and BROKEN nothing is taken in, and the stream says why (`parked`). An access may
miss the item there too, or in ITEM_REMOVED (a rewrite that was under way): that says nothing new.

Beside this a stream's writer lives or is gone, and a gone one said a last word or did not. Both are
independent of the item: a stream ends when its writer is gone and all that it wrote was taken in or dropped.

Each of its outputs takes records in one state only, READY, and there only while nothing failed a moment ago
(`error`, tried again after a rest) and no other file took its name since the last commit (`moved`: the commit
first notes where the output continues in it). The others:

* NEW: the file has yet to be opened, cut to what is durable, or made.
* WIDENING: the next record has a column that the table lacks; it waits for a rewrite.
* REWRITING: a thread writes the wider table into a temp file.
* RENAMING: agent.db says that the temp file is the content from now on; it has yet to get its name.
* SUSPECT: a sync failed, or closing the file did. What was written since the last commit may be gone though
  it can still be read, so the durable part is copied into a new file.

::

                begun            too narrow            rewrite
      NEW -------------> READY -------------> WIDENING --------> REWRITING
       ^                  |  ^                    ^  rewrite failed  |
       |  started over    |  |  renamed           +------------------+
       +------------------+  +-------- RENAMING <------- rewritten --+
       |
       | restored         suspected (a sync failed)
      SUSPECT <---------- NEW, READY, WIDENING

`dirty` is not a state: the file holds bytes that no sync has covered, whatever comes next.

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

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeVar

from rla_client.contract.process.stop_signals import stopped_by
from rla_client.contract.spool.losses import Loss, merged, read_losses

RUN_FILE_FORMAT = 1
MAX_TAKEN = 100  # streams of a run whose ends are remembered, those that wrote last
_AS_THEY_ARE = (  # fields of a record that run.json has by the same name
    "root", "table", "index", "log_folder", "host", "user", "pid", "opened", "reason", "exit_code", "signal",
    "last_row", "closed", "time_step", "rows", "lost", "parent",
)  # fmt: skip
# earlier releases lack these
_SINCE_LATER: dict[str, Any] = {
    "reopened": None, "ran_before_s": 0.0, "config": None, "launch": "", "lost_others": 0,
}  # fmt: skip
_EXTRA = {"run_key": "", "replicate": True, "epoch": 0}


class StreamState(Enum):
    """Of a stream; see above."""

    TAKING_IN = "taking in"
    ITEM_MISSED = "item missed"
    ITEM_REMOVED = "item removed"
    ROOT_AWAY = "root away"
    PARKED = "parked"
    BROKEN = "broken"


class StreamEvent(Enum):
    """What happens to a stream; `ROOT_AWAY`, `REFUSED` and `FAULT` come with a reason."""

    MISSED = "an access did not find the item"
    REMOVED = "the item is gone, and its data root is there"
    ROOT_AWAY = "the data root is not there, or another one"
    ROOT_FOUND = "the data root is back"
    REFUSED = "this release cannot read on"
    FAULT = "an exception that is ours"
    GIVEN_UP = "the stream is gone from the spool for good"


class OutputState(Enum):
    """Of an output; see above."""

    NEW = "new"
    READY = "ready"
    WIDENING = "widening"
    REWRITING = "rewriting"
    RENAMING = "renaming"
    SUSPECT = "suspect"


class OutputEvent(Enum):
    """What happens to an output."""

    BEGUN = "its file is open and holds what it should"
    STARTED_OVER = "its file was removed or emptied, or another one took its name"
    TOO_NARROW = "a record needs columns that the table lacks"
    REWRITE = "a rewrite has begun"
    REWRITE_FAILED = "it failed, or could not be stored"
    REWRITTEN = "it is stored in agent.db"
    RENAMED = "the temp file has its name"
    SUSPECTED = "a sync or a close failed"
    RESTORED = "its state is that of a commit again"


class ForbiddenEventError(Exception):
    """An event in a state in which it cannot happen: a fault of the agent."""


S, E = StreamState, StreamEvent
OS, OE = OutputState, OutputEvent
State = TypeVar("State", StreamState, OutputState)
WAITING = frozenset({S.ROOT_AWAY, S.PARKED, S.BROKEN})
"""States of a stream in which nothing is taken in."""
TRANSITIONS: dict[tuple[Enum, Enum], Any] = {  # to a state of the same kind
    (S.TAKING_IN, E.MISSED): S.ITEM_MISSED,
    (S.TAKING_IN, E.ROOT_AWAY): S.ROOT_AWAY,
    (S.TAKING_IN, E.REFUSED): S.PARKED,
    (S.ITEM_MISSED, E.MISSED): S.ITEM_MISSED,
    (S.ITEM_MISSED, E.REMOVED): S.ITEM_REMOVED,
    (S.ITEM_MISSED, E.ROOT_AWAY): S.ROOT_AWAY,
    (S.ITEM_MISSED, E.REFUSED): S.PARKED,
    (S.ITEM_REMOVED, E.MISSED): S.ITEM_REMOVED,
    (S.ITEM_REMOVED, E.REFUSED): S.PARKED,
    (S.ROOT_AWAY, E.MISSED): S.ROOT_AWAY,
    (S.ROOT_AWAY, E.ROOT_AWAY): S.ROOT_AWAY,
    (S.ROOT_AWAY, E.ROOT_FOUND): S.TAKING_IN,
    (S.PARKED, E.MISSED): S.PARKED,
    (S.PARKED, E.REFUSED): S.PARKED,
    (S.BROKEN, E.MISSED): S.BROKEN,
    (S.BROKEN, E.REFUSED): S.BROKEN,
    **{(state, E.FAULT): S.BROKEN for state in S},
    **{(state, E.GIVEN_UP): S.ITEM_REMOVED for state in S},
    (OS.NEW, OE.BEGUN): OS.READY,
    (OS.NEW, OE.STARTED_OVER): OS.NEW,
    (OS.NEW, OE.SUSPECTED): OS.SUSPECT,
    (OS.NEW, OE.RESTORED): OS.NEW,
    (OS.READY, OE.STARTED_OVER): OS.NEW,
    (OS.READY, OE.TOO_NARROW): OS.WIDENING,
    (OS.READY, OE.SUSPECTED): OS.SUSPECT,
    (OS.WIDENING, OE.STARTED_OVER): OS.NEW,
    (OS.WIDENING, OE.REWRITE): OS.REWRITING,
    (OS.WIDENING, OE.SUSPECTED): OS.SUSPECT,
    (OS.REWRITING, OE.REWRITE_FAILED): OS.WIDENING,
    (OS.REWRITING, OE.REWRITTEN): OS.RENAMING,
    (OS.RENAMING, OE.RENAMED): OS.READY,
    (OS.RENAMING, OE.SUSPECTED): OS.RENAMING,  # of the file that is about to be replaced
    (OS.SUSPECT, OE.BEGUN): OS.SUSPECT,
    (OS.SUSPECT, OE.STARTED_OVER): OS.NEW,
    (OS.SUSPECT, OE.SUSPECTED): OS.SUSPECT,
    (OS.SUSPECT, OE.RESTORED): OS.NEW,
}


def after(state: State, event: StreamEvent | OutputEvent) -> State:
    """The next state.

    Raises:
        ForbiddenEventError: the event cannot happen in this state.
    """
    try:
        following: State = TRANSITIONS[state, event]
    except KeyError:
        whose = "stream" if isinstance(state, StreamState) else "output"
        raise ForbiddenEventError(
            f"{event.name} in state {state.name}: {event.value}, though the {whose} is {state.value!r}"
        ) from None
    return following


# -- runs ---------------------------------------------------------------------------------------


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


_LIVE = (RunState.RUNNING, RunState.STALLED)
_CLOSED = {  # by the program: what its closing frame says
    RunEvent.CLOSED_FINISHED: RunState.FINISHED,
    RunEvent.CLOSED_INTERRUPTED: RunState.INTERRUPTED,
    RunEvent.CLOSED_FAILED: RunState.FAILED,
}
_ENDED = (*_CLOSED.values(), RunState.KILLED, RunState.REMOVED)

RUN_TRANSITIONS: dict[tuple[RunState, RunEvent], RunState] = {
    **{(state, RunEvent.ROW): RunState.RUNNING for state in _LIVE},
    **{(state, RunEvent.ROW): state for state in _ENDED},  # a late row changes no end
    **{(state, RunEvent.SILENT): RunState.STALLED for state in _LIVE},
    **{(state, RunEvent.SILENT): state for state in _ENDED},
    **{(state, event): end for event, end in _CLOSED.items() for state in _LIVE},
    **{(state, event): state for event in _CLOSED for state in _ENDED},
    **{(state, RunEvent.WRITER_GONE): RunState.KILLED for state in _LIVE},
    **{(state, RunEvent.WRITER_GONE): state for state in _ENDED},  # the usual order: closed, then gone
    **{(state, RunEvent.ITEM_GONE): RunState.REMOVED for state in RunState},
    **{(state, RunEvent.REOPENED): RunState.RUNNING for state in RunState},
}


def closed_as(state: str) -> RunEvent:
    """The event of a closing frame that says `state`; a word that this agent does not know is finished."""
    return next((event for event, end in _CLOSED.items() if end.value == state), RunEvent.CLOSED_FINISHED)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is known of one run. Times are Unix seconds.

    A run that ended and was resumed in place is one run: `opened` is when it began, `reopened` when its
    newest process did, and `ran_before_s` how long the earlier ones ran.
    """

    run: str
    root: str
    table: str
    index: str
    log_folder: str
    host: str
    user: str
    pid: int
    opened: float
    client: str
    config: str | None = None
    state: RunState = RunState.RUNNING
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    last_row: float | None = None
    closed: float | None = None
    time_step: float | None = None
    rows: int = 0
    lost: int = 0  # rows
    lost_others: int = 0
    losses: tuple[Loss, ...] = ()
    reopened: float | None = None
    ran_before_s: float = 0.0
    damaged: int = 0  # bytes of the spool that held no record
    streams: tuple[str, ...] = ()
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)  # stream → taken in up to here
    parent: dict[str, Any] | None = None
    launch: str = ""
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def live(self) -> bool:
        """Whether more may come."""
        return self.state in _LIVE

    def rows_seen(self, count: int, step: float, timestamp: float) -> RunRecord:
        """Rows came; the last one had this time-step and timestamp."""
        state = RUN_TRANSITIONS[self.state, RunEvent.ROW]
        return replace(
            self, state=state, rows=self.rows + count, time_step=step, last_row=timestamp,
            reason="" if state is RunState.RUNNING else self.reason,
        )  # fmt: skip

    def after(self, event: RunEvent, now: float, reason: str = "") -> RunRecord:
        """The record after an event; the same object when nothing changes."""
        state = RUN_TRANSITIONS[self.state, event]
        if state is self.state:
            return self
        ended = state in _ENDED
        return replace(self, state=state, reason=reason, closed=now if ended else None)

    def gone_on(self, opened: float, now: float) -> RunRecord:
        """The record once a later stream, opened then, continues a run that ended."""
        end = self.closed if self.state in _CLOSED.values() else None
        last = end or self.last_row or self.closed  # a death is noticed late where no agent ran
        begun = self.opened if self.reopened is None else self.reopened
        ran = max(last - begun, 0.0) if last is not None else 0.0
        again = self.after(RunEvent.REOPENED, now)
        return replace(again, reopened=opened, ran_before_s=self.ran_before_s + ran)

    def process_ended(self, words: str, *, own: bool, last: bool, told: str = "") -> RunRecord:
        """The record of a run that ended, once `exit_code` and `signal` of a command are in it.

        A run that was told to stop and then ended is interrupted, however it was closed. One that was closed
        without a word of failure, as at `sys.exit(3)`, failed if its process did.

        Args:
            words: the end of the command.
            own: the command's process is the run's, and not one that started it.
            last: no run of the command was opened later: of several in one process, that one may have failed.
            told: the signal that told the command to stop while the run was open; empty for none.
        """
        if self.state is RunState.KILLED:
            return replace(
                self, reason=words if own else f"{self.reason}; the command that started it: {words}"
            )
        if told and self.state in {RunState.FINISHED, RunState.FAILED}:
            after = f"told to stop by {told}"
            reason = f"{after}; {self.reason}" if self.reason else after
            return replace(self, state=RunState.INTERRUPTED, reason=reason)
        if self.state is RunState.FINISHED and own and last and self.exit_code:
            stopped = stopped_by(self.exit_code) is not None
            return replace(self, state=RunState.INTERRUPTED if stopped else RunState.FAILED, reason=words)
        return self

    def losing(self, rows: int, others: int, losses: Iterable[Loss]) -> RunRecord:
        """So many more rows and other things are lost."""
        return replace(
            self,
            lost=self.lost + rows,
            lost_others=self.lost_others + others,
            losses=merged(self.losses, losses),
        )

    def with_stream(self, stream: str) -> RunRecord:
        """One more writer process."""
        return self if stream in self.streams else replace(self, streams=(*self.streams, stream))

    def taken_in(self, stream: str, position: tuple[int, int]) -> RunRecord:
        """A stream was taken in up to here: a segment and an offset in it."""
        if self.taken.get(stream) == position:
            return self
        others = [one for one in self.taken.items() if one[0] != stream]
        return replace(self, taken=dict([*others[1 - MAX_TAKEN :], (stream, position)]))

    def to_plain(self, now: float) -> dict[str, Any]:
        """Content of run.json."""
        return {
            "format": RUN_FILE_FORMAT,
            "run_id": self.run,
            "table": self.table,
            "index": self.index,
            "user": self.user,
            "host": self.host,
            "pid": self.pid,
            "state": self.state.value,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "opened": self.opened,
            "reopened": self.reopened,
            "ran_before_s": self.ran_before_s,
            "last_row": self.last_row,
            "closed": self.closed,
            "time_step": self.time_step,
            "rows": self.rows,
            "lost": self.lost,
            "lost_others": self.lost_others,
            "losses": [loss._asdict() for loss in self.losses],
            "damaged_bytes": self.damaged,
            "streams": list(self.streams),
            "taken": {stream: list(position) for stream, position in self.taken.items()},
            "config": self.config,
            "parent": self.parent,
            "launch": self.launch,
            "versions": {"client": self.client},
            "updated": now,
            "root": self.root,
            "log_folder": self.log_folder,
            **self.extra,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> RunRecord:
        """Read what `to_plain` gave."""
        return cls(
            run=plain["run_id"],
            client=plain["versions"]["client"],
            state=RunState(plain["state"]),
            damaged=plain.get("damaged_bytes", 0),
            streams=tuple(plain["streams"]),
            taken={stream: (number, offset) for stream, (number, offset) in plain.get("taken", {}).items()},
            losses=tuple(read_losses(plain.get("losses"))),
            extra={name: plain.get(name, usual) for name, usual in _EXTRA.items()},
            **{name: plain[name] for name in _AS_THEY_ARE},
            **{name: plain.get(name, usual) for name, usual in _SINCE_LATER.items()},
        )
