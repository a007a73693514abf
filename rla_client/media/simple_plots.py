"""Figures of plain data in one call, as in RLA.

The file is `<name>.png`, or `<name>.pdf` with `pretty`, without a time-step; an extension in the name is
kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.job.media_job import FORMATS, JOB_FIGURE
from rla_client.media.figure_recorder import MatplotlibRecorder
from rla_client.media.recording_target import makes_nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes


DEFAULT_SIZE = (8.0, 6.0)  # inches
PRETTY_SIZE = (7.0, 6.0)
FONT_SIZES = {"plot": (18, 16, 15), "hist": (15, 13, 13), "scatter": (15, 13, 13)}  # label, tick, legend
TITLE_SIZE = 13
Series = Sequence[Any]


def simple_plot(  # noqa: PLR0913, PLR0917 - RLA's signature
    name: str,
    data: Series | None = None,
    x: Series | None = None,
    y: Series | None = None,
    labels: Sequence[str] | None = None,
    pretty: bool = False,
    xlabel: str = "",
    ylabel: str = "",
    colors: Sequence[str] | None = None,
    styles: Sequence[str] | None = None,
    cover: bool = False,
    figsize: tuple[float, float] = DEFAULT_SIZE,
    title: str = "",
    legend_outside: bool = False,
    **plot_options: Any,  # noqa: ANN401 - as matplotlib's plot
) -> str:
    """Plot curves.

    Args:
        name: file name below the results folder.
        data: a sequence of curves, each a sequence of y values.
        x: with `y` instead of `data`: a sequence of x values for each curve.
        y: a sequence of y values for each curve.
        labels: one text for each curve.
        pretty: pdf, 7 x 6 inches, scientific numbers on the y axis; uses colors and styles.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        colors: one for each curve.
        styles: one for each curve, such as "x--".
        cover: replace a file of this name.
        figsize: inches, when not pretty.
        title: text above the plot.
        legend_outside: put the legend to the right of the axes.
        **plot_options: of matplotlib's `plot`.

    Returns:
        The path of the file.

    Raises:
        ArgumentError: neither data nor x and y are given.
    """
    if data is not None:
        curves: list[tuple[Any, ...]] = [(curve,) for curve in data]
    elif x is not None and y is not None:
        curves = list(zip(x, y, strict=True))
    else:
        raise ArgumentError("simple_plot needs data, or x and y")

    def draw(axes: Axes) -> None:
        for curve, text, color, style in zip(
            curves, _each(labels), _each(colors), _each(styles), strict=False
        ):
            own = {"label": text, **({"color": color} if color else {}), **plot_options}
            axes.plot(*curve, *([style] if style else []), **own)
        axes.set_title(title, fontsize=TITLE_SIZE)
        if pretty:
            axes.ticklabel_format(axis="y", style="sci", scilimits=(-4, 4), useMathText=True)
            axes.yaxis.get_offset_text().set_fontsize(16)

    size = PRETTY_SIZE if pretty else figsize
    texts = (xlabel, ylabel)
    return _draw_and_save(
        name, draw, texts, kind="plot", pretty=pretty, cover=cover, figsize=size, outside=legend_outside
    )


def simple_hist(  # noqa: PLR0913, PLR0917 - RLA's signature
    name: str,
    data: Any,  # noqa: ANN401 - as matplotlib's hist
    labels: Sequence[str] | None = None,
    pretty: bool = False,
    xlabel: str = "",
    ylabel: str = "",
    colors: Sequence[str] | None = None,
    styles: Sequence[str] | None = None,
    cover: bool = False,
    title: str = "",
    **hist_options: Any,  # noqa: ANN401 - as matplotlib's hist
) -> str:
    """Plot histograms as steps.

    Args:
        name: file name below the results folder.
        data: numbers, or with `labels` a sequence of numbers for each.
        labels: one text for each histogram.
        pretty: pdf instead of png.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        colors: one for each histogram.
        styles: line styles, one for each histogram.
        cover: replace a file of this name.
        title: text above the plot.
        **hist_options: of matplotlib's `hist`.

    Returns:
        The path of the file.
    """
    options = {"histtype": "step", **hist_options}

    def draw(axes: Any) -> None:  # noqa: ANN401 - with options that are typed one by one there
        axes.set_title(title, fontsize=TITLE_SIZE)
        if labels is None:
            axes.hist(data, **options)
            return
        for numbers, text, color, style in zip(data, labels, _each(colors), _each(styles), strict=False):
            own = {key: value for key, value in (("color", color), ("linestyle", style)) if value}
            axes.hist(numbers, label=text, **own, **options)

    return _draw_and_save(name, draw, (xlabel, ylabel), kind="hist", pretty=pretty, cover=cover, figsize=None)


def simple_scatter(  # noqa: PLR0913, PLR0917 - RLA's signature
    name: str,
    datas: Series,
    texts: Sequence[object],
    pretty: bool = False,
    xlabel: str = "",
    ylabel: str = "",
    cover: bool = False,
    **scatter_options: Any,  # noqa: ANN401 - as matplotlib's scatter
) -> str:
    """Plot clouds of points, each with its text at the mean.

    Args:
        name: file name below the results folder.
        datas: arrays of shape (n, 2).
        texts: one for each array.
        pretty: pdf instead of png.
        xlabel: label of the x axis.
        ylabel: label of the y axis.
        cover: replace a file of this name.
        **scatter_options: of matplotlib's `scatter`.

    Returns:
        The path of the file.
    """
    import numpy as np  # noqa: PLC0415 - only where it is drawn

    options = {"marker": "x", "alpha": 0.2, **scatter_options}

    def draw(axes: Axes) -> None:
        for number, (data, text) in enumerate(zip(datas, texts, strict=True)):
            points = np.asarray(data)
            color = f"C{number % 10}"
            axes.scatter(points[:, 0], points[:, 1], color=color, **options)
            axes.annotate(str(text), xy=tuple(points.mean(axis=0)), color=color)

    return _draw_and_save(
        name, draw, (xlabel, ylabel), kind="scatter", pretty=pretty, cover=cover, figsize=None
    )


def _each(values: Sequence[str] | None) -> Iterator[str | None]:
    return cycle([None]) if values is None else iter(values)


def _draw_and_save(  # noqa: PLR0913 - all of them by name, from three callers
    name: str,
    draw: Callable[[Any], None],
    labels: tuple[str, str],
    *,
    kind: str,
    pretty: bool,
    cover: bool,
    figsize: tuple[float, float] | None,
    outside: bool = False,
) -> str:
    if os.path.splitext(name)[1][1:].lower() not in FORMATS[JOB_FIGURE]:
        name += ".pdf" if pretty else ".png"
    if makes_nothing():
        return MatplotlibRecorder.save(name, None, cover, add_timestamp=False)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - only where it is drawn
    from matplotlib.figure import Figure  # noqa: PLC0415

    label_size, tick_size, legend_size = FONT_SIZES[kind]
    figure = Figure(figsize=figsize)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    draw(axes)
    axes.set_xlabel(labels[0], fontsize=label_size)
    axes.set_ylabel(labels[1], fontsize=label_size)
    axes.tick_params(labelsize=tick_size)
    axes.grid(visible=True)
    if axes.get_legend_handles_labels()[0]:
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1, 1)} if outside else {}
        axes.legend(prop={"size": legend_size}, **beside)
    return MatplotlibRecorder.save(name, figure, cover, add_timestamp=False, bbox_inches="tight")
