# ruff: noqa: NPY002
# (the global generator is what set_seed seeds)
from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.launcher import deterministic
from rla_client.launcher.deterministic import get_seed, set_seed

torch = pytest.importorskip("torch", reason="needs PyTorch")


@pytest.fixture(autouse=True)
def torch_settings_come_back() -> Any:
    state = deterministic.capture_rng()
    yield
    deterministic.restore_rng({**state, "seed": None})
    torch.use_deterministic_algorithms(mode=False)
    torch.backends.cudnn.deterministic = False


def draw() -> Any:
    return random.random(), float(np.random.rand()), float(torch.rand(())), torch.randn(3).tolist()


def test_same_seed_same_numbers() -> None:
    deterministic.set_seed(7)
    first = draw()
    deterministic.set_seed(7)
    assert draw() == first
    deterministic.set_seed(8)
    assert draw() != first
    assert deterministic.get_seed() == 8
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark


def test_captured_states_come_back_in_the_middle_of_a_sequence() -> None:
    deterministic.set_seed(np.int64(3))
    draw()
    random.gauss(0, 1)  # leaves a second number waiting inside python's generator
    state = deterministic.capture_rng()
    expected = draw(), random.gauss(0, 1)
    deterministic.set_seed(99)
    draw()
    deterministic.restore_rng(state)
    assert (draw(), random.gauss(0, 1)) == expected
    assert deterministic.get_seed() == 3


@pytest.mark.parametrize("seed", [1.5, "3", None])
def test_what_is_no_seed(seed: Any) -> None:
    with pytest.raises(ArgumentError):
        deterministic.set_seed(seed)


def test_derived_seeds_depend_on_every_part_and_on_nothing_else() -> None:
    seeds = {
        deterministic.derive_seed(seed, worker, epoch)
        for seed in range(3)
        for worker in range(4)
        for epoch in range(5)
    }
    assert len(seeds) == 60
    assert deterministic.derive_seed(1, 2, 3) == deterministic.derive_seed(1, 2, 3)
    assert deterministic.limits()


def test_tensorflow_goes_on_where_it_was() -> None:
    tf = pytest.importorskip("tensorflow", reason="needs the extra tensorflow")

    def draw() -> list[float]:
        return [float(tf.random.uniform([])) for _ in range(3)] + [
            float(tf.random.get_global_generator().normal([]))
        ]

    deterministic.set_seed(3)
    first = draw()
    state = deterministic.capture_rng()
    second = draw()
    assert first[:3] != second[:3]
    deterministic.restore_rng(state)
    assert draw() == second
    deterministic.set_seed(3)
    assert draw()[:3] == first[:3]


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70, np.int64(-5), 4294967294])
def test_any_whole_number_is_a_seed_as_in_garage(seed: int) -> None:
    set_seed(seed)
    assert get_seed() == int(seed) % 4294967294
