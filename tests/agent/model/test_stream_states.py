"""Each event in each state of a stream, the forbidden ones too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_agent.model.stream_states import (
    TRANSITIONS,
    WAITING,
    ForbiddenEventError,
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
def test_each_pair_is_in_the_table_or_forbidden(state: StreamState, event: StreamEvent) -> None:
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
