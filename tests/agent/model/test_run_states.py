"""The table of states: each pair is there, ends stay ends."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from rla_agent.model.run_record import RunRecord
from rla_agent.model.run_states import RUN_TRANSITIONS, RunEvent, RunState, closed_as

ENDED = {RunState.FINISHED, RunState.INTERRUPTED, RunState.FAILED, RunState.KILLED, RunState.REMOVED}


@pytest.mark.parametrize(("state", "event"), list(itertools.product(RunState, RunEvent)))
def test_each_pair_has_a_successor(state: RunState, event: RunEvent) -> None:
    after = RUN_TRANSITIONS[state, event]
    if state in ENDED and event not in {RunEvent.REOPENED, RunEvent.ITEM_GONE}:
        assert after is state


def record() -> RunRecord:
    return RunRecord("id", "/d", "t", "i", "/d/log/t/i", "box", "me", 1, 100.0, "1")


def test_the_times_of_a_run_that_is_resumed_twice() -> None:
    first = record().rows_seen(3, 2.0, 150.0).after(RunEvent.CLOSED_FAILED, 160.0)
    second = first.gone_on(1000.0, 1001.0)
    assert (second.state, second.opened, second.reopened) == (RunState.RUNNING, 100.0, 1000.0)
    assert (second.ran_before_s, second.closed) == (60.0, None)
    shot = replace(first, exit_code=137, signal=9).gone_on(1000.0, 1001.0)
    assert (shot.exit_code, shot.signal) == (None, None), "those of the process before"
    killed = second.rows_seen(1, 3.0, 1030.0).after(RunEvent.WRITER_GONE, 90_000.0)  # noticed a day later
    assert killed.gone_on(100_000.0, 100_001.0).ran_before_s == 90.0
    silent = second.after(RunEvent.WRITER_GONE, 1500.0)  # its last row is from before
    assert silent.gone_on(2000.0, 2001.0).ran_before_s == 60.0
    read = RunRecord.from_plain(killed.to_plain(0.0))
    assert read == replace(killed, extra=read.extra)


def test_the_record_of_an_earlier_release_has_the_defaults_of_later_fields() -> None:
    plain = record().rows_seen(3, 2.0, 150.0).to_plain(0.0)
    read = RunRecord.from_plain({name: value for name, value in plain.items() if name != "launch"})
    assert (read.launch, read.rows, read.time_step) == ("", 3, 2.0)
    with pytest.raises(TypeError, match="root"):
        RunRecord.from_plain({name: value for name, value in plain.items() if name != "root"})


def test_what_a_closing_frame_says() -> None:
    for state in ("finished", "interrupted", "failed"):
        ended = record().after(closed_as(state), 160.0, "why")
        assert (ended.state.value, ended.reason, ended.closed) == (state, "why", 160.0)
    assert record().after(closed_as("of a later version"), 160.0).state is RunState.FINISHED
