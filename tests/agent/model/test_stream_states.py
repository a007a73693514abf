"""Each event in each state of a stream and of an output, the forbidden ones too."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_agent.model.stream_states import (
    TRANSITIONS,
    WAITING,
    ForbiddenEventError,
    OutputEvent,
    OutputState,
    StreamEvent,
    StreamState,
    after,
)

S, E = StreamState, StreamEvent
FORBIDDEN = {
    (S.TAKING_IN, E.REMOVED): "nobody has missed the item",
    (S.TAKING_IN, E.ROOT_FOUND): "nobody waits for it",
    (S.ITEM_MISSED, E.ROOT_FOUND): "nobody waits for it",
    (S.ITEM_REMOVED, E.REMOVED): "it is gone already",
    (S.ITEM_REMOVED, E.ROOT_AWAY): "a removed item waits for nothing",
    (S.ITEM_REMOVED, E.ROOT_FOUND): "a removed item waits for nothing",
    (S.ROOT_AWAY, E.REMOVED): "it cannot be seen whether the item is there",
    (S.ROOT_AWAY, E.REFUSED): "nothing is read",
    (S.PARKED, E.REMOVED): "nothing is looked for",
    (S.PARKED, E.ROOT_AWAY): "nothing is looked for",
    (S.PARKED, E.ROOT_FOUND): "it waits for another release",
    (S.BROKEN, E.REMOVED): "nothing is looked for",
    (S.BROKEN, E.ROOT_AWAY): "nothing is looked for",
    (S.BROKEN, E.ROOT_FOUND): "it waits for the agent's next start",
}


@pytest.mark.parametrize("event", E)
@pytest.mark.parametrize("state", S)
def test_each_pair_of_a_stream(state: StreamState, event: StreamEvent) -> None:
    assert ((state, event) in TRANSITIONS) != ((state, event) in FORBIDDEN)
    if (state, event) in FORBIDDEN:
        with pytest.raises(ForbiddenEventError, match=f"{event.name} in state {state.name}"):
            after(state, event)
    else:
        assert after(state, event) is TRANSITIONS[state, event]


@given(st.lists(st.sampled_from(E), max_size=40))
def test_what_holds_on_every_way(events: list[StreamEvent]) -> None:
    state = S.TAKING_IN
    for event in events:
        if (state, event) in FORBIDDEN:
            continue
        former, state = state, after(state, event)
        if event is E.FAULT:
            assert state is S.BROKEN
        elif event is E.GIVEN_UP:
            assert state is S.ITEM_REMOVED
        elif former is S.BROKEN:
            assert state is S.BROKEN, "only the agent's next start helps"
        elif former is S.ITEM_REMOVED:
            assert state in {S.ITEM_REMOVED, S.PARKED}, "a removed item does not come back"
        elif state is S.ITEM_REMOVED:
            assert former is S.ITEM_MISSED, "no item is removed on the word of a single access"
        elif state is S.TAKING_IN:
            assert former in {S.TAKING_IN, S.ROOT_AWAY}
        if event is E.MISSED:
            assert state in WAITING | {S.ITEM_MISSED, S.ITEM_REMOVED}


OS, OE = OutputState, OutputEvent
NEXT = {
    # state: begun, started over, too narrow, rewrite, failed, rewritten, renamed, suspected, restored
    OS.NEW: (OS.READY, OS.NEW, None, None, None, None, None, OS.SUSPECT, OS.NEW),
    OS.READY: (None, OS.NEW, OS.WIDENING, None, None, None, None, OS.SUSPECT, None),
    OS.WIDENING: (None, OS.NEW, None, OS.REWRITING, None, None, None, OS.SUSPECT, None),
    OS.REWRITING: (None, None, None, None, OS.WIDENING, OS.RENAMING, None, None, None),
    OS.RENAMING: (None, None, None, None, None, None, OS.READY, OS.RENAMING, None),
    OS.SUSPECT: (OS.SUSPECT, OS.NEW, None, None, None, None, None, OS.SUSPECT, OS.NEW),
}


@pytest.mark.parametrize(("state", "event"), list(product(OS, OE)))
def test_each_pair_of_an_output(state: OutputState, event: OutputEvent) -> None:
    expected = NEXT[state][list(OE).index(event)]
    if expected is None:
        with pytest.raises(ForbiddenEventError, match=f"{event.name} in state {state.name}"):
            after(state, event)
    else:
        assert after(state, event) is expected
    assert ((state, event) in TRANSITIONS) == (expected is not None)


def test_what_cannot_be_trusted_is_restored_before_it_takes_records() -> None:
    """From SUSPECT every way to READY leads through the last commit, or through a fresh file."""
    ways = {event: state for (former, event), state in TRANSITIONS.items() if former is OS.SUSPECT}
    assert {event for event, state in ways.items() if state is not OS.SUSPECT} == {
        OE.RESTORED,
        OE.STARTED_OVER,
    }
