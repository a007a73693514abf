"""Which attributes a checkpoint takes."""

from __future__ import annotations

import pytest

pytest.importorskip("stable_baselines3", reason="needs stable-baselines3")

import torch

from rla_client.integrations.sb3.portable import portable


class Elsewhere:
    """Belongs elsewhere."""


def test_attributes_that_can_be_copied_and_are_nobody_elses() -> None:
    there = Elsewhere()
    values = {
        "number": 1,
        "tensor": torch.ones(2),
        "lambda": lambda: None,
        "direct": there,
        "within": {"list": [there]},
        "another": Elsewhere(),
    }
    assert portable(values).keys() == values.keys() - {"lambda"}
    assert portable(values, lambda part: part is there).keys() == {"number", "tensor", "another"}
