"""`wandb.plot`: charts, stored as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rla_client.integrations.wandb.unknown_names import Unknown, unknown_part
from rla_client.media.logged_media.confusion_matrix import ConfusionMatrix
from rla_client.media.logged_media.logged_value import to_array
from rla_client.run.current_logger import warn


def line(table: Any, *_: Any, **__: Any) -> Any:
    """The table, unchanged."""
    return table


scatter = bar = histogram = line


def confusion_matrix(
    probs: Any = None, y_true: Any = None, preds: Any = None, class_names: Sequence[str] | None = None,
    title: str | None = None, split_table: bool = False,
) -> Any:  # fmt: skip
    """Counts of actual and predicted classes, see `rla_client.ConfusionMatrix`.

    Without names, classes may be any numbers or texts, as in wandb. Invalid arguments are a warning, as a
    chart must not stop the training.
    """
    del title, split_table
    try:
        truth = to_array(y_true).reshape(-1)
        guess = to_array(probs if preds is None else preds)
        guess = guess.argmax(axis=1) if preds is None and guess.ndim == 2 else guess.reshape(-1)  # noqa: PLR2004 - scores
        if class_names is None:
            names, both = np.unique(np.concatenate([truth, guess]), return_inverse=True)
            truth, guess, class_names = both[: len(truth)], both[len(truth) :], list(map(str, names))
        return ConfusionMatrix(truth, guess, class_names)
    except (TypeError, ValueError) as error:
        warn(f"wandb: the confusion matrix was not kept: {error}")
        return Unknown("plot.confusion_matrix")


def __getattr__(name: str) -> Unknown:
    return unknown_part("plot", name)
