"""How often growing files are read and appended to."""

from __future__ import annotations

import itertools

import pytest

from rla_agent.replicate.worker import pacing
from rla_agent.replicate.worker.pacing import Appends


def test_a_large_file_that_grows_is_read_for_a_twentieth_of_the_time() -> None:
    assert pacing.pace_s(0.0) == pacing.PACE_S
    assert pacing.pace_s(10.0) == 200.0


def test_appends_of_a_steady_run_are_less_than_one_each_period_and_none_waits_longer() -> None:
    """Rows each half second into two files: with 4.6 s there are ten in each append."""
    appends, every = Appends(), 4.6
    waiting: list[float] = []
    made: list[float] = []
    longest = 0.0
    for tick in range(1_000):
        now = tick * 0.1
        if tick % 5 == 0:
            waiting.append(now)
        if waiting and appends.next(b"run", waiting[0], now, every) <= now:
            assert appends.next(b"run", waiting[-1], now, every) == now, "the other file goes with it"
            longest = max(longest, now - waiting[0])
            made.append(now)
            waiting.clear()
    assert longest == pytest.approx(every, abs=0.11)
    assert len(made) <= 100 / 5 + 1
    assert {round(after - before, 1) for before, after in itertools.pairwise(made)} <= {5.0, 5.1}


def test_appends_after_a_pause_or_a_step_of_the_clock_are_at_once() -> None:
    appends = Appends()
    assert appends.next(b"run", 100.0, 100.0, 4.6) == 100.0
    assert appends.next(b"other", 100.1, 100.1, 4.6) == 100.1
    assert appends.next(b"run", 101.0, 101.0, 4.6) == 105.6
    assert appends.next(b"run", 101.0, 103.0, 4.6) == 105.6
    assert appends.next(b"run", 101.0, 105.7, 4.6) == 105.7
    assert appends.next(b"run", 120.0, 120.0, 4.6) == 120.0
    assert appends.next(b"run", 121.0, 121.0, 4.6) == 125.6
    assert appends.next(b"run", 5.0, 5.0, 4.6) == 5.0, "another clock"
    assert appends.next(b"run", 6.0, 6.0, 0.0) == 6.0
