"""Calls of `learn` are told apart by their order, and one continues to count where it was."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

from rla_client.integrations.sb3.learns import Learn, Learns, frame_of, iterations, learns_of, set_iterations


class Model:
    """What these functions know of a model."""

    seen: ClassVar[list[Any]] = []

    def __init__(self, total: int = 256) -> None:
        self._total_timesteps = total

    def learn(self, steps: int, at: int = 0) -> list[int]:
        """As on-policy algorithms count."""
        iteration = 0
        counted: list[int] = []
        self.begin(at)
        while len(counted) < steps:
            iteration += 1
            counted.append(iteration)
        self.seen.append(iterations(frame_of(self)))
        return counted

    def begin(self, at: int) -> None:
        """As a callback does."""
        if at:
            set_iterations(frame_of(self), at)


def test_iterations_continue() -> None:
    model = Model()
    assert model.learn(3) == [1, 2, 3]
    assert model.learn(3, at=5) == [6, 7, 8]
    assert Model.seen == [3, 8]
    assert frame_of(model) is None
    assert iterations(None) == 0
    set_iterations(None, 3)


def repeated(former: list[Learn], *models: Any) -> list[tuple[Learn | None, bool]]:
    learns = Learns()
    learns.former = former
    found = []
    for model in models:
        learns.begin(model)
        found.append((learns.had_ended(), learns.continues()))
    return found


def test_what_had_ended_is_passed_over_and_the_last_one_continues() -> None:
    first, second = Learn(0, 256, 256), Learn(0, 256, 200)  # one that a callback ended early
    model = Model()
    assert repeated([first, Learn(0, 256)], model, model, model) == [
        (first, False),
        (None, True),
        (None, False),
    ]
    assert repeated([first, second], model, model, model) == [(first, False), (second, True), (None, False)]


def test_more_is_learnt_where_more_is_asked_for() -> None:
    assert repeated([Learn(0, 256, 256)], Model(512)) == [(None, True)]
    assert repeated([Learn(0, 256, 256)], Model(100)) == [(Learn(0, 256, 256), True)]


def test_models_are_counted_and_kept_as_plain_data() -> None:
    learns, one, other = Learns(), Model(), Model(7)
    for model in (one, other, one):
        learns.begin(model)
    assert [call.model for call in learns.calls] == [0, 1, 0]
    assert learns_of({"learns": learns.kept()}) == learns.calls
    assert learns_of({}) == [Learn(0, 0)]
