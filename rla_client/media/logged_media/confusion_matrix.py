"""A confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.media.logged_media.logged_value import to_array
from rla_client.media.logged_media.table import Table

MAX_CLASSES = 1000


class ConfusionMatrix(Table):
    """Counts of actual and predicted classes: `log({"confusion": ConfusionMatrix(labels, predictions)})`.

    Becomes `<time-step>-confusion.csv`: a row for each actual class, a column for each predicted one.

    Args:
        actual: class of each sample, a number from 0.
        predicted: predicted class of each sample, a number from 0; or scores of shape (samples, classes).
        class_names: names of the classes, in the order of their numbers.

    Raises:
        ArgumentError: the two differ in length, or a class has no name or is not a number from 0.
    """

    def __init__(self, actual: Any, predicted: Any, class_names: Sequence[object] | None = None) -> None:  # noqa: ANN401 - arrays, tensors or lists
        import numpy as np  # noqa: PLC0415 - not at import of the package

        truth, guess = to_array(actual).reshape(-1), to_array(predicted)
        if guess.ndim == 2 and guess.shape[1] > 1:  # noqa: PLR2004 - scores
            guess = guess.argmax(axis=1)
        guess = guess.reshape(-1)
        if len(truth) != len(guess):
            raise ArgumentError(
                f"a confusion matrix has a prediction for each label, got {len(truth)} and {len(guess)}"
            )
        both = np.concatenate([truth, guess])
        numbers = both.dtype.kind in "iufb"
        whole = both.astype(np.int64) if numbers else np.array([-1])
        if len(both) and (not numbers or (whole != both).any() or whole.min() < 0):
            raise ArgumentError("classes of a confusion matrix are numbers from 0")
        most = int(whole.max()) + 1 if len(whole) else 0
        count = most if class_names is None else len(class_names)
        if not most <= count <= MAX_CLASSES:
            raise ArgumentError(f"class {most - 1} has no name, or is beyond {MAX_CLASSES}: {count} classes")
        names = (
            [str(number) for number in range(count)] if class_names is None else list(map(str, class_names))
        )
        pairs = whole[: len(truth)] * count + whole[len(truth) :]
        counts = np.bincount(pairs, minlength=count * count).reshape(count, count)
        rows = [[name, *row] for name, row in zip(names, counts.tolist(), strict=True)]
        super().__init__(["actual", *(f"predicted {name}" for name in names)], rows)
