"""The time-step."""

from __future__ import annotations

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.stream.clock import MAX_LEADERS, TimeStepHolder


def test_set_get_inc_add() -> None:
    clock = TimeStepHolder()
    assert clock.get_time() == 0
    clock.set_time(5)
    clock.inc_time()
    clock.add_time(10)
    assert clock.get_time() == 16
    clock.set_time(3)
    assert clock.get_time() == 3
    clock.config(7, "ignored")
    assert clock.get_time() == 7


def test_numbers_of_numpy_and_torch_become_plain() -> None:
    torch = pytest.importorskip("torch")
    clock = TimeStepHolder()
    for given, plain in ((np.int64(4), int), (np.float32(0.5), float), (torch.tensor(8), int)):
        clock.set_time(given)
        assert type(clock.get_time()) is plain
        assert clock.get_time() == given


@pytest.mark.parametrize("wrong", ["5", None, [1], np.array([1, 2]), float("nan"), np.float32("inf")])
def test_what_is_no_number_is_refused(wrong: object) -> None:
    clock = TimeStepHolder()
    with pytest.raises(ArgumentError, match="a time-step is a finite number"):
        clock.set_time(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="a time-step is a finite number"):
        clock.add_time(wrong)  # type: ignore[arg-type]
    assert clock.get_time() == 0
    assert not clock.was_set


@pytest.mark.parametrize("truth", [True, np.True_])
def test_a_truth_value_counts_as_a_whole_number(truth: bool) -> None:
    clock = TimeStepHolder()
    clock.set_time(truth)
    assert repr(clock.get_time()) == "1"


def test_it_follows_what_is_logged_unless_the_script_sets_it() -> None:
    clock = TimeStepHolder()
    clock.set_time(0)  # to begin there
    for step in (10, 20, 15):
        clock.follow(step)
    assert clock.get_time() == 20, "the furthest"
    clock.put(8)  # a checkpoint's
    clock.set_time(8)
    clock.follow(9)
    assert clock.get_time() == 9
    clock.set_time(3)
    clock.follow(100)
    assert clock.get_time() == 3, "the script counts by itself"
    clock.clear()
    clock.follow(4)
    assert clock.get_time() == 4


def test_it_begins_anew_where_the_steps_of_what_moved_it_do() -> None:
    clock = TimeStepHolder()
    clock.follow(3, "episode")
    for step in (10, 40, 38):
        clock.follow(step, "loss")
    clock.follow(4, "episode")
    clock.follow(1, "other")
    assert clock.get_time() == 40, "late values, and those of another counter"
    clock.follow(1, "loss")
    clock.follow(1, "loss")
    assert clock.get_time() == 40, "one step alone may be of an epoch"
    clock.follow(2, "loss")
    assert clock.get_time() == 2, "the next stage"
    clock.follow(20, "loss")
    later = TimeStepHolder()
    later.put(20, clock.leaders)
    later.follow(1, "other")
    assert later.get_time() == 20
    later.follow(1, "loss")
    later.follow(2, "loss")
    assert later.get_time() == 2, "also after a resume at the end of a stage"
    clock.set_time(9)
    clock.follow(1, "loss")
    assert clock.get_time() == 9, "the script counts by itself"


def test_a_name_that_is_logged_on_two_scales_leads_nowhere() -> None:
    """A loss by steps in training, and by epochs in validation; two workers of unlike speed."""
    clock, workers = TimeStepHolder(), TimeStepHolder()
    for epoch in range(1, 5):
        for step in range(0, 1000, 50):
            clock.follow(1000 * (epoch - 1) + step, "loss")
            workers.follow(100 * (epoch * 20 + step // 50), "loss")
            workers.follow(30 * (epoch * 20 + step // 50), "loss")
        for _ in range(2):
            clock.follow(epoch, "loss")
        assert clock.get_time() == 1000 * epoch - 50
        assert workers.get_time() == 100 * (epoch * 20 + 19)


def test_it_knows_a_bounded_number_of_names() -> None:
    clock = TimeStepHolder()
    for step in range(1, 2 * MAX_LEADERS):
        clock.follow(step, f"loss {step}")
    clock.follow(2 * MAX_LEADERS, "x" * 100_000)
    assert len(clock.leaders) < MAX_LEADERS
    assert "x" * 100_000 not in clock.leaders
    clock.put(5, {"a": 5, 1: 2, "b": "c"})
    assert clock.leaders == {"a": 5}, "what a file says is looked at"
