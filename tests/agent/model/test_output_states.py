"""Each event in each state of an output, the forbidden ones too."""

from __future__ import annotations

from itertools import product

import pytest

from rla_agent.model.output_states import TRANSITIONS, OutputEvent, OutputState, after
from rla_agent.model.stream_states import ForbiddenEventError

S, E = OutputState, OutputEvent
NEXT = {
    # state: begun, started over, too narrow, rewrite, failed, rewritten, renamed, suspected, restored
    S.NEW: (S.READY, S.NEW, None, None, None, None, None, S.SUSPECT, S.NEW),
    S.READY: (None, S.NEW, S.WIDENING, None, None, None, None, S.SUSPECT, None),
    S.WIDENING: (None, S.NEW, None, S.REWRITING, None, None, None, S.SUSPECT, None),
    S.REWRITING: (None, None, None, None, S.WIDENING, S.RENAMING, None, None, None),
    S.RENAMING: (None, None, None, None, None, None, S.READY, S.RENAMING, None),
    S.SUSPECT: (S.SUSPECT, S.NEW, None, None, None, None, None, S.SUSPECT, S.NEW),
}


@pytest.mark.parametrize(("state", "event"), list(product(S, E)))
def test_each_pair(state: OutputState, event: OutputEvent) -> None:
    expected = NEXT[state][list(E).index(event)]
    if expected is None:
        with pytest.raises(ForbiddenEventError, match=f"{event.name} in state {state.name}"):
            after(state, event)
    else:
        assert after(state, event) is expected
    assert ((state, event) in TRANSITIONS) == (expected is not None)


def test_what_cannot_be_trusted_is_restored_before_it_takes_records() -> None:
    """From SUSPECT every way to READY leads through the last commit, or through a fresh file."""
    ways = {event: state for (former, event), state in TRANSITIONS.items() if former is S.SUSPECT}
    assert {event for event, state in ways.items() if state is not S.SUSPECT} == {E.RESTORED, E.STARTED_OVER}
