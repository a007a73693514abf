"""The state of a run of a sweep, as it follows from its events.

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

Of a run that fails or is killed the one who saw it says whether it is started `again`.
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

    number: int  # from 1, in the order in which runs were planned
    trial: int  # which choice of parameters, from 1
    parameters: dict[str, Any]  # with the seed
    state: str = WAITING  # see above
    attempts: int = 0  # how often it was started
    failures: int = 0  # how often it failed since it was last told to begin anew
    kills: int = 0  # how often it was killed since then
    reason: str = ""  # of the last end that was none to wish for
    started: float = 0.0  # of the last attempt, Unix seconds
    ended: float = 0.0  # likewise, once it ended
    engine: str = ""  # which engine started it last
    handle: str = ""  # what that engine knows it by
    reasons: list[str] = field(default_factory=list)

    def handle_event(self, event: Mapping[str, Any]) -> None:
        """Take one event.

        Raises:
            ValueError: it cannot follow on this state.
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
            self.ended = parse_moment(event["ended"]) if "ended" in event else when  # it was seen later
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
        """The run that a `planned` event names.

        Raises:
            ValueError: it names none.
        """
        parameters = event.get("parameters")
        if not isinstance(parameters, dict):
            raise ValueError("a run without parameters")  # noqa: TRY004 - what the file holds, not a type of ours
        return cls(parse_uint(event.get("run")), parse_uint(event.get("trial")), parameters)

    def took(self, now: float) -> float | None:
        """Seconds that its last attempt ran; None before the first."""
        if not self.started:
            return None
        return max((now if self.state == RUNNING else self.ended or self.started) - self.started, 0.0)


def counts(runs: Mapping[int, SweepRun]) -> dict[str, int]:
    """How many are in each state, in the order in which they are shown."""
    found = dict.fromkeys(STATES, 0)
    for run in runs.values():
        found[run.state] += 1
    return found
