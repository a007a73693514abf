"""Retention rules of checkpoints.

The stamps in the files of one name decide which may be deleted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rla_client.contract.checkpoint.stamp import Stamp, read_stamp

Mode = Literal["min", "max"]


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention rules of one name's checkpoints.

    Attributes:
        max_to_keep: so many of the newest; None keeps all.
        keep_every: in addition, those whose time-step is a multiple of this.
        keep_best: in addition, the `k` with the best value: (metric, "min" or "max", k).
    """

    max_to_keep: int | None = None
    keep_every: int | None = None
    keep_best: tuple[str, Mode, int] | None = None


def badness(mode: Mode, value: float) -> float:
    """Sort key of a metric: smaller is better, NaN is worst."""
    if math.isnan(value):
        return math.inf
    return value if mode == "min" else -value


@dataclass(frozen=True, slots=True)
class Saved:
    """One finished checkpoint file of ours."""

    file: str
    stamp: Stamp


def superseded(saved: Sequence[Saved], keep: Retention) -> list[Saved]:
    """The files that `keep` does not protect, oldest first.

    Age is the order of the saves and not the time-step: after a resume at an earlier step the
    newest file may have a lower number than the ones before it.

    Args:
        saved: files of one name and one run, in any order.
        keep: the rules; without `max_to_keep` nothing is superseded.
    """
    if keep.max_to_keep is None:
        return []
    by_age = sorted(saved, key=lambda entry: entry.stamp.order)
    kept = {entry.file for entry in by_age[-keep.max_to_keep :]}
    if keep.keep_every is not None:
        kept |= {entry.file for entry in by_age if entry.stamp.time_step % keep.keep_every == 0}
    if keep.keep_best is not None:
        metric, mode, count = keep.keep_best
        rated = [entry for entry in by_age if metric in entry.stamp.metrics]
        rated.sort(key=lambda entry: (badness(mode, entry.stamp.metrics[metric]), -entry.stamp.order))
        kept |= {entry.file for entry in rated[:count]}
    return [entry for entry in by_age if entry.file not in kept]


def list_saved(folder: Path, name: str) -> list[Saved]:
    """Saved files of this name in a checkpoint folder."""
    saved = []
    for entry in sorted(os.listdir(folder)):
        if entry.startswith(f"{name}_") and entry.endswith(".pt"):
            stamp = read_stamp(folder / entry)
            if stamp is not None and stamp.name == name:
                saved.append(Saved(entry, stamp))
    return saved
