"""State of a run of a sweep, as it follows from its events.

    waiting --started--> running --placed----> running     its engine has a handle for it
                                 --finished--> finished
                                 --failed----> waiting (again) or failed
                                 --killed----> waiting (again) or failed
                                 --lost------> waiting     its driver was gone, and so was the run
                                 --stopped---> stopped     as asked
    stopped --started--> running
    failed  --revived--> waiting     as asked
    waiting, stopped --dropped--> dropped     the file no longer asks for it
    dropped --revived--> waiting     it does again

The event of a failed or killed run says whether it is started `again`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rla_client.contract.text.number_parsing import parse_moment, parse_uint

WAITING, RUNNING, FINISHED, FAILED, STOPPED = "waiting", "running", "finished", "failed", "stopped"
DROPPED = "dropped"
STATES = (RUNNING, WAITING, FINISHED, FAILED, STOPPED, DROPPED)
OVER = frozenset({FINISHED, FAILED, DROPPED})
OUTCOMES = ("finished", "failed", "killed", "lost", "stopped")
TRANSITIONS: Mapping[tuple[str, str], str] = {
    (WAITING, "started"): RUNNING,
    (STOPPED, "started"): RUNNING,
    (RUNNING, "placed"): RUNNING,
    (RUNNING, "finished"): FINISHED,
    (RUNNING, "failed"): FAILED,
    (RUNNING, "killed"): FAILED,
    (RUNNING, "lost"): WAITING,
    (RUNNING, "stopped"): STOPPED,
    (FAILED, "revived"): WAITING,
    (WAITING, "dropped"): DROPPED,
    (STOPPED, "dropped"): DROPPED,
    (DROPPED, "revived"): WAITING,
}
MAX_REASON_CHARS = 500


@dataclass(slots=True)
class SweepRun:
    """One run: a trial's parameters with one seed."""

    number: int  # from 1, in the order of planning
    trial: int  # number of the trial, from 1
    parameters: dict[str, Any]  # including the seed
    state: str = WAITING  # see above
    attempts: int = 0  # number of starts
    failures: int = 0  # number of failures since the run was last revived
    kills: int = 0  # number of kills since then
    reason: str = ""  # of the last unsuccessful end
    started: float = 0.0  # start of the last attempt, Unix seconds
    ended: float = 0.0  # end of the last attempt, Unix seconds
    engine: str = ""  # engine of the last attempt
    handle: str = ""  # identifier of the attempt in that engine
    reasons: list[str] = field(default_factory=list)

    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Apply an event; the only writer of `state`.

        Raises:
            ValueError: the event is not allowed in this state.
        """
        kind = str(event.get("event"))
        after = TRANSITIONS.get((self.state, kind))
        if after is None:
            raise ValueError(f"run {self.number} is {self.state}, so it cannot be {kind}")
        when = parse_moment(event.get("time"))
        if kind == "started":
            self.attempts, self.started, self.ended = self.attempts + 1, when, 0.0
            self.engine, self.handle = str(event.get("engine", "")), str(event.get("handle", ""))
        elif kind == "placed":
            self.handle = str(event.get("handle", ""))
        elif kind == "revived":
            self.failures = self.kills = 0
        elif kind in OUTCOMES:
            self.ended = parse_moment(event["ended"]) if "ended" in event else when  # noticed later
            self.failures += kind == "failed"
            self.kills += kind == "killed"
            reason = str(event.get("reason", ""))[:MAX_REASON_CHARS]
            if reason:
                self.reason = reason
                self.reasons.append(reason)
            if event.get("again") is True and kind in {"failed", "killed"}:
                after = WAITING
        self.state = after

    @classmethod
    def planned(cls, event: Mapping[str, Any]) -> SweepRun:
        """The run of a `planned` event.

        Raises:
            ValueError: the event is malformed.
        """
        parameters = event.get("parameters")
        if not isinstance(parameters, dict):
            raise ValueError("a run without parameters")  # noqa: TRY004 - a fault of the file, not of the caller
        return cls(parse_uint(event.get("run")), parse_uint(event.get("trial")), parameters)

    def took(self, now: float) -> float | None:
        """Duration of the last attempt in seconds; None before the first."""
        if not self.started:
            return None
        return max((now if self.state == RUNNING else self.ended or self.started) - self.started, 0.0)


def counts(runs: Mapping[int, SweepRun]) -> dict[str, int]:
    """Number of runs in each state, in the order of display."""
    found = dict.fromkeys(STATES, 0)
    for run in runs.values():
        found[run.state] += 1
    return found
