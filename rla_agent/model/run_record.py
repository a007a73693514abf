"""Record of a run, the content of its run.json. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from rla_agent.model.run_states import CLOSED, ENDED, LIVE, RUN_TRANSITIONS, RunEvent, RunState
from rla_client.contract.process.stop_signals import stopped_by
from rla_client.contract.run_part import PART, RANKS
from rla_client.contract.spool.losses import Loss, merged, read_losses

RUN_FILE_FORMAT = 1
MAX_TAKEN = 100  # streams of a run whose ends are remembered, those that wrote last
_AS_THEY_ARE = (  # fields of a record that run.json has by the same name
    "table", "index", "user", "host", "pid", "reason", "exit_code", "signal", "opened", "reopened",
    "ran_before_s", "last_row", "closed", "time_step", "rows", "lost", "lost_others", "config", "parent",
    "launch", "root", "log_folder",
)  # fmt: skip
_EXTRA = {"run_key": "", "replicate": True, "epoch": 0}
_OF_A_PART = (PART, RANKS)  # further ones


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Record of one run. Times are Unix seconds.

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
    def part(self) -> str:
        """The machine, where this is a part of another machine's run; else empty."""
        return str(self.extra.get(PART) or "")

    def as_part(self, machine: str, epoch: int) -> RunRecord:
        """The record of a part, of an opening of the run; a newer opening has processes of its own."""
        same = self.part == machine and epoch <= int(self.extra.get("epoch") or 0)
        ranks = self.extra.get(RANKS) or {} if same else {}
        newest = max(epoch, int(self.extra.get("epoch") or 0))
        return replace(self, extra={**self.extra, PART: machine, RANKS: ranks, "epoch": newest})

    def as_main(self, epoch: int) -> RunRecord:
        """The record of the whole run, of an opening of it by a process of this machine."""
        kept = {name: value for name, value in self.extra.items() if name not in _OF_A_PART}
        return replace(self, extra={**kept, "epoch": epoch})

    @property
    def live(self) -> bool:
        """Whether more records may come."""
        return self.state in LIVE

    def rows_seen(self, count: int, step: float, timestamp: float) -> RunRecord:
        """The record after further rows, the last one with this time-step and timestamp."""
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
        ended = state in ENDED
        return replace(self, state=state, reason=reason, closed=now if ended else None)

    def gone_on(self, opened: float, now: float) -> RunRecord:
        """The record once a later stream, opened then, continues a run that ended."""
        end = self.closed if self.state in CLOSED.values() else None
        last = end or self.last_row or self.closed  # a death is noticed late where no agent ran
        begun = self.opened if self.reopened is None else self.reopened
        ran = max(last - begun, 0.0) if last is not None else 0.0
        again = self.after(RunEvent.REOPENED, now)
        ran += self.ran_before_s
        return replace(again, reopened=opened, ran_before_s=ran, exit_code=None, signal=None)

    def process_ended(self, words: str, *, own: bool, last: bool, told: str = "") -> RunRecord:
        """The record of a run that ended, once `exit_code` and `signal` of a command are in it.

        A run that was told to stop and then ended is interrupted, however it was closed. One that was closed
        without a word of failure, as at `sys.exit(3)`, failed if its process did.

        Args:
            words: the end of the command.
            own: the command's process is the run's, and not one that started it.
            last: no run of the command was opened later: of several in one process, that one may have failed.
            told: the stop signal of the command while the run was open; empty for none.
        """
        if self.state is RunState.KILLED and own and self.exit_code == 0:  # os._exit(0)
            return replace(self, state=RunState.FINISHED, reason="")
        if self.state is RunState.KILLED:
            if not own:
                return replace(self, reason=f"{self.reason}; the command that started it: {words}")
            return self if self.reason.startswith(words) else replace(self, reason=words)
        if told and self.state in {RunState.FINISHED, RunState.FAILED}:
            after = f"told to stop by {told}"
            reason = f"{after}; {self.reason}" if self.reason else after
            return replace(self, state=RunState.INTERRUPTED, reason=reason)
        if self.state is RunState.FINISHED and own and last and self.exit_code:
            stopped = stopped_by(self.exit_code) is not None
            return replace(self, state=RunState.INTERRUPTED if stopped else RunState.FAILED, reason=words)
        return self

    def losing(self, rows: int, others: int, losses: Iterable[Loss]) -> RunRecord:
        """The record after further losses of rows and other things."""
        return replace(
            self,
            lost=self.lost + rows,
            lost_others=self.lost_others + others,
            losses=merged(self.losses, losses),
        )

    def with_stream(self, stream: str) -> RunRecord:
        """The record with one more writer process."""
        return self if stream in self.streams else replace(self, streams=(*self.streams, stream))

    def taken_in(self, stream: str, position: tuple[int, int]) -> RunRecord:
        """The record with a stream ingested up to a segment and an offset in it."""
        if self.taken.get(stream) == position:
            return self
        others = [one for one in self.taken.items() if one[0] != stream]
        return replace(self, taken=dict([*others[1 - MAX_TAKEN :], (stream, position)]))

    def to_plain(self, now: float) -> dict[str, Any]:
        """Content of run.json."""
        return {
            "format": RUN_FILE_FORMAT,
            "run_id": self.run,
            "state": self.state.value,
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
            "losses": [loss._asdict() for loss in self.losses],
            "damaged_bytes": self.damaged,
            "streams": list(self.streams),
            "taken": {stream: list(position) for stream, position in self.taken.items()},
            "versions": {"client": self.client},
            "updated": now,
            **self.extra,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> RunRecord:
        """Inverse of `to_plain`."""
        return cls(
            run=plain["run_id"],
            client=plain["versions"]["client"],
            state=RunState(plain["state"]),
            damaged=plain["damaged_bytes"],
            streams=tuple(plain["streams"]),
            taken={stream: (number, offset) for stream, (number, offset) in plain["taken"].items()},
            losses=tuple(read_losses(plain["losses"])),
            extra={
                **{name: plain.get(name, usual) for name, usual in _EXTRA.items()},
                **{name: plain[name] for name in _OF_A_PART if name in plain},
            },
            # records of earlier releases lack later fields
            **{name: plain[name] for name in _AS_THEY_ARE if name in plain},
        )
