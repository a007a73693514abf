"""What can become of a run."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rla_client.sweep.run_state import (
    DROPPED,
    FAILED,
    FINISHED,
    MAX_REASON_CHARS,
    RUNNING,
    STATES,
    STOPPED,
    TRANSITIONS,
    WAITING,
    SweepRun,
    counts,
)

EVENTS = (
    "started",
    "placed",
    "finished",
    "failed",
    "killed",
    "lost",
    "stopped",
    "revived",
    "dropped",
    "nonsense",
)
AFTER = {
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


def run(state: str = WAITING) -> SweepRun:
    return SweepRun(1, 1, {"lr": 0.1}, state)


def event(kind: str, when: float = 5.0, **content: Any) -> dict[str, Any]:
    return {"event": kind, "time": when, **content}


@pytest.mark.parametrize(("state", "kind"), list(itertools.product(STATES, EVENTS)))
def test_each_state_and_event(state: str, kind: str) -> None:
    one = run(state)
    expected = AFTER.get((state, kind))
    if expected is None:
        with pytest.raises(ValueError, match=f"run 1 is {state}, so it cannot be {kind}"):
            one.handle_event(event(kind))
        assert one == run(state), "a forbidden event changes nothing"
    else:
        one.handle_event(event(kind))
        assert one.state == expected


def test_the_table_has_no_more() -> None:
    assert dict(TRANSITIONS) == AFTER


@pytest.mark.parametrize("kind", ["failed", "killed"])
def test_what_goes_wrong_may_be_started_again(kind: str) -> None:
    one = run()
    for attempt in (1, 2):
        one.handle_event(event("started", attempt * 10, engine="local"))
        one.handle_event(event("placed", handle="7"))
        assert (one.attempts, one.started, one.ended, one.engine, one.handle) == (
            attempt,
            attempt * 10,
            0,
            "local",
            "7",
        )
        one.handle_event(event(kind, attempt * 10 + 3, reason=f"r{attempt}", again=attempt == 1))
    assert (one.state, one.failures + one.kills, one.reason, one.reasons) == (FAILED, 2, "r2", ["r1", "r2"])
    assert one.took(1000) == 3
    one.handle_event(event("revived"))
    assert (one.state, one.failures, one.kills, one.attempts) == (WAITING, 0, 0, 2)
    one.handle_event(event("started"))
    assert one.handle == "", "of the attempt before"


@pytest.mark.parametrize("kind", ["lost", "stopped", "finished"])
def test_again_means_nothing_elsewhere(kind: str) -> None:
    one = run(RUNNING)
    one.handle_event(event(kind, again=True))
    assert one.state == AFTER[RUNNING, kind]
    assert (one.failures, one.kills) == (0, 0)


@pytest.mark.parametrize("when", [None, "x", float("nan"), -1, 1e300, [1]])
def test_a_damaged_moment_changes_nothing(when: Any) -> None:
    one = run()
    with pytest.raises((TypeError, ValueError)):
        one.handle_event({"event": "started", "time": when})
    assert one == run()


def test_how_long_it_took() -> None:
    one = run()
    assert one.took(10) is None
    one.handle_event(event("started", 10))
    assert (one.took(12), one.took(5)) == (2, 0)


def test_a_reason_is_cut() -> None:
    one = run(RUNNING)
    one.handle_event(event("failed", reason="x" * 10_000))
    assert len(one.reason) == MAX_REASON_CHARS


def test_a_planned_run() -> None:
    found = SweepRun.planned({"run": 3, "trial": 2, "parameters": {"a": None}})
    assert (found.number, found.trial, found.parameters, found.state) == (3, 2, {"a": None}, WAITING)
    for damaged in (
        {"run": 3, "trial": 2},
        {"run": -1, "trial": 2, "parameters": {}},
        {"run": 1, "parameters": {}},
    ):
        with pytest.raises((TypeError, ValueError)):
            SweepRun.planned(damaged)


def test_counts_are_in_their_order() -> None:
    found = counts({1: run(FAILED), 2: run(RUNNING), 3: run(FAILED)})
    assert list(found) == list(STATES)
    assert (found[FAILED], found[RUNNING], found[WAITING]) == (2, 1, 0)
