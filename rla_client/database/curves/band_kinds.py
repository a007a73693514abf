"""Kinds of bands around a curve."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from rla_client.contract.text.spelling import unknown

Band: TypeAlias = Literal["ci", "iqm", "stderr", "std", "range", "median", "none"]
BAND_NAMES = {  # for captions
    "ci": "mean, 95 % CI",
    "iqm": "IQM, 95 % CI",
    "stderr": "mean ± standard error",
    "std": "mean ± std",
    "range": "mean, min to max",
    "median": "median, quartiles",
}


def band_kind(text: str) -> Band:
    """The kind of band that a text names.

    Raises:
        ArgumentError: it names none.
    """
    kinds: tuple[Band, ...] = get_args(Band)
    if text not in kinds:
        raise unknown(text, kinds, f"band {text!r} is unknown")
    return kinds[kinds.index(text)]
