"""Plots of runs.

matplotlib, numpy and pandas are imported only when a plot is made.
"""

from __future__ import annotations

from typing import Any

_HOMES = {
    "plot_func": "rla_plotters",
    "curves": "frames",
    "plot_saved_images": "images",
}
__all__ = ["curves", "plot_func", "plot_saved_images"]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
