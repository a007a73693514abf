"""Windowless canvas of pyplot figures.

pyplot's functions draw on its current figure. If there is none, `canvas` makes one with an agg canvas and
hands it to pyplot, so that no backend is chosen and no window opens; the user can still choose a backend. As
in RLA, the last drawing stays pyplot's current figure until the next call of `canvas`. On a machine with a
display, it stays only if pyplot draws into files or a notebook: other backends cannot show a figure that they
did not make.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.backend_bases import FigureCanvasBase


FILE_BACKENDS = frozenset(["agg", "pdf", "svg", "ps", "cairo", "template"])  # of matplotlib, without a window
_left: list[FigureManagerBase] = []  # of the figure that the last drawing left open


class _Manager(FigureManagerBase):
    """Manager of a figure that `canvas` made; `later` runs before pyplot hands the figure out."""

    later: Callable[[], object] | None = None

    @property
    def canvas(self) -> FigureCanvasBase:
        later, self.later = self.later, None
        if later is not None:
            later()
        return self._canvas

    @canvas.setter
    def canvas(self, value: FigureCanvasBase) -> None:
        self._canvas = value


def when_seen(figure: Figure, finish: Callable[[], object]) -> bool:
    """Run `finish` when pyplot hands `figure` out; returns False if that cannot be detected."""
    manager = Gcf.get_active()
    if not isinstance(manager, _Manager) or figure.canvas.manager is not manager:
        return False
    manager.later = finish
    return True


@contextmanager
def canvas(*, close_all: bool = False) -> Iterator[Callable[[], Any]]:
    """Give pyplot a figure to draw on: the user's current one, cleared, or else a new one.

    Figures that are created in the block are closed at its end, except the current one.

    Args:
        close_all: close all figures at the end.

    Yields:
        A function that returns the current (figure, axes).
    """
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow, and not needed for the user's own figures

    fresh = _drop_left()
    before = set(plt.get_fignums())
    if before and not fresh:
        plt.cla()
    else:
        _agg_figure(max(before, default=0) + 1)
    drawn = False
    try:
        yield lambda: (plt.gcf(), plt.gca())
        drawn = True
    finally:
        if close_all:
            plt.close("all")
        last = Gcf.get_active() if drawn and can_stay() else None
        for number in set(plt.get_fignums()) - before:
            if last is None or number != last.num:
                plt.close(number)
        if last is not None and last.num not in before:
            _left.append(last)


def leave(figure: Figure) -> None:
    """Leave a figure of `canvas` open as the current one, in place of the one that was left before."""
    manager = figure.canvas.manager
    _drop_left()
    if manager in Gcf.get_all_fig_managers():
        _left.append(manager)


def has_figures() -> bool:
    """Whether pyplot has figures, apart from one that `canvas` left open."""
    return any(manager not in _left for manager in Gcf.get_all_fig_managers())


def can_stay() -> bool:
    """Whether a figure with an agg canvas may stay open; chooses no backend."""
    import matplotlib.pyplot  # noqa: F401, ICN001, PLC0415 - drops a backend whose windows cannot open here

    backend = dict.get(mpl.rcParams, "backend")
    if isinstance(backend, str):
        return backend.lower() in FILE_BACKENDS or "inline" in backend
    displays = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform.startswith("linux") and not any(map(os.environ.get, displays))


def _drop_left() -> bool:
    """Close the figure that was left open; returns whether it was still the current one."""
    current, dropped = Gcf.get_active(), False
    while _left:
        manager = _left.pop()
        if isinstance(manager, _Manager):
            manager.later = None
        if manager in Gcf.get_all_fig_managers():
            dropped = dropped or manager is current
            Gcf.destroy(manager)
    return dropped


def _agg_figure(number: int) -> None:
    figure = Figure()
    Gcf._set_new_active_manager(_Manager(FigureCanvasAgg(figure), number))  # noqa: SLF001 - there is no public function
