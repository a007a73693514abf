"""How `pretty_plot_wrapper` and the simple plots draw: pyplot without a window.

pyplot's functions draw on its current figure. Where there is none, `canvas` makes one with an
agg canvas and hands it to pyplot, so that no backend is chosen and no window opens; the user's
own choice of a backend stays open. Imported only when something is drawn, since it imports
pyplot.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def canvas(
    *, close_all: bool = False, figsize: tuple[float, float] | None = None
) -> Iterator[Callable[[], Any]]:
    """Give pyplot a figure to draw on, and tidy up afterwards.

    Args:
        close_all: close all figures at the end; else only those that came into being meanwhile.
        figsize: inches; given, a fresh figure is used even where there is a current one.

    Yields:
        A function that returns (figure, axes) current at its call.
    """
    before = set(plt.get_fignums())
    if before and figsize is None:
        plt.cla()
    else:
        _agg_figure(figsize, max(before, default=0) + 1)
    try:
        yield lambda: (plt.gcf(), plt.gca())
    finally:
        if close_all:
            plt.close("all")
        else:
            for number in set(plt.get_fignums()) - before:
                plt.close(number)


def has_figures() -> bool:
    """Whether pyplot has figures now."""
    return bool(plt.get_fignums())


def _agg_figure(figsize: tuple[float, float] | None, number: int) -> None:
    figure = Figure(figsize=figsize)
    Gcf._set_new_active_manager(FigureManagerBase(FigureCanvasAgg(figure), number))  # noqa: SLF001 - no public way
