"""Confusion matrices: what is counted, in which forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.confusion_matrix import ConfusionMatrix

ACTUAL, PREDICTED = [0, 0, 1, 2], [0, 1, 1, 0]
COUNTS = [["cat", 1, 1, 0], ["dog", 0, 1, 0], ["cow", 1, 0, 0]]


@pytest.mark.parametrize(
    "predicted",
    [PREDICTED, np.array(PREDICTED), np.array(PREDICTED, float), np.eye(3)[PREDICTED]],
    ids=["list", "array", "floats", "scores"],
)
def test_rows_are_actual_classes_and_columns_predicted_ones(predicted: Any) -> None:
    found = ConfusionMatrix(ACTUAL, predicted, ["cat", "dog", "cow"])
    assert found.columns == ["actual", "predicted cat", "predicted dog", "predicted cow"]
    assert found.data == COUNTS


def test_tensors_and_numbers_for_names() -> None:
    torch = pytest.importorskip("torch")
    found = ConfusionMatrix(torch.tensor(ACTUAL), torch.tensor(PREDICTED))
    assert [row[0] for row in found.data] == ["0", "1", "2"]


def test_nothing_yet() -> None:
    assert ConfusionMatrix([], [], ["a", "b"]).data == [["a", 0, 0], ["b", 0, 0]]
    assert ConfusionMatrix([], []).data == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (([0, 1], [0]), "2 and 1"),
        (([0, -1], [0, 0]), "numbers from 0"),
        (([0.5], [0]), "numbers from 0"),
        ((["cat"], ["dog"]), "numbers from 0"),
        (([0, 2], [0, 0], ["a", "b"]), "class 2 has no name"),
        (([0, 5_000], [0, 0]), "beyond 1000"),
    ],
)
def test_what_cannot_be_counted_is_said(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ConfusionMatrix(*given)
