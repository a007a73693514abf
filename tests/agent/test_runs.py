"""The table of states: each pair is there, ends stay ends."""

from __future__ import annotations

import itertools

import pytest

from rla_agent.runs import TRANSITIONS, RunEvent, RunState

ENDED = {RunState.FINISHED, RunState.FAILED, RunState.KILLED, RunState.REMOVED}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(RunState, RunEvent)))
def test_each_pair_has_a_successor(state: RunState, event: RunEvent) -> None:
    after = TRANSITIONS[state, event]
    if state in ENDED and event not in {RunEvent.REOPENED, RunEvent.ITEM_GONE}:
        assert after is state
