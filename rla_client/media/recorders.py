"""Figures, images and videos of a run: `results/<index>/<time-step>-<name>.<ext>`.

The training loop pays for the copy: a figure is pickled (a few milliseconds), an array is copied
into a blob of the spool or into shared memory; then one JOB frame, and the agent has the file
drawn and encoded by a process of its own (`render.py`). The file appears a moment later, whole.

The caller does the work himself, with one warning for each reason, when a figure cannot travel
(`figures.py`), when no agent runs, or when there is no spool. Files outside the run's
results folder (an explicit `results_dir`) are always written by the caller, because the agent
writes nowhere else.

With RLA_MODE=disabled and on ranks above 0 no file is made and nothing is drawn or encoded; the calls
return where the file would have been.

Names: `add_timestamp` puts the time-step before the last part; without a known extension the
default one is added. A file with an explicit extension stays unless `cover`. Wrong arguments
raise; what disk or agent do is a warning.

`simple_plot`, `simple_hist` and `simple_scatter` draw a figure from plain data in one call, as in RLA. They
save `<name>.png`, or `<name>.pdf` with `pretty`, without a time-step in the name; a name with an extension
keeps it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.jobs import FORMATS, JOB_FIGURE, JOB_IMAGE, MAX_FIGURE_PIXELS, VECTOR_FORMATS
from rla_client.media.jobs import (
    Place,
    RecordingTarget,
    bind,
    can_send,
    find_place,
    make_here,
    makes_nothing,
    record_pixels,
    send_blob,
    warn_once,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rla_client.media.video import VideoRecorder

__all__ = ["ImgRecorder", "MatplotlibRecorder", "RecordingTarget", "VideoRecorder", "bind"]

DEFAULT_SIZE = (8.0, 6.0)  # inches
PRETTY_SIZE = (7.0, 6.0)
FONT_SIZES = {"plot": (18, 16, 15), "hist": (15, 13, 13), "scatter": (15, 13, 13)}  # label, tick, legend
TITLE_SIZE = 13
Series = Sequence[Any]


class MatplotlibRecorder:
    """Saves matplotlib figures."""

    @classmethod
    def save(
        cls,
        name: str,
        fig: Figure | None = None,
        cover: bool = False,
        add_timestamp: bool = True,
        results_dir: str | os.PathLike[str] | None = None,
        **savefig_options: object,
    ) -> str:
        """Save a figure as it is now.

        Args:
            name: below the results folder, png without a known extension.
            fig: the figure (or a thing that has one as `.figure`); pyplot's current one by default.
            cover: replace a file with an explicit extension.
            add_timestamp: put the time-step before the name.
            results_dir: another folder; outside of the run's, the caller draws.
            **savefig_options: of `Figure.savefig`.

        Returns:
            The path of the file. It is there at once, or a moment later when the agent makes it.

        Raises:
            ArgumentError: the name, figure or format cannot be meant.
            NotConfiguredError: no run is open and no results_dir is given.
        """
        place = _figure_place(name, cover, add_timestamp, results_dir, savefig_options)
        if not place.stays:
            if fig is None:
                import matplotlib.pyplot as plt  # noqa: PLC0415 - only where figures are made

                fig = plt.gcf()
            figure = getattr(fig, "figure", fig)
            if not hasattr(figure, "savefig"):  # of axes in a SubFigure
                figure = getattr(figure, "figure", figure)
            if not hasattr(figure, "savefig"):
                raise ArgumentError(f"fig must be a figure of matplotlib, got {type(fig).__name__}")
            _record_figure(place, figure, savefig_options)
        return str(place.path)

    @classmethod
    def pretty_plot_wrapper(  # noqa: PLR0913, PLR0917 - RLA's signature
        cls,
        name: str,
        plot_func: Callable[[], object],
        cover: bool = False,
        legend_outside: bool = False,
        pretty_plot: bool = False,
        xlabel: str = "",
        ylabel: str = "",
        title: str = "",
        add_timestamp: bool = True,
        close_all_fig: bool = False,
        results_dir: str | os.PathLike[str] | None = None,
        **savefig_options: object,
    ) -> str:
        """Draw with pyplot and save the result.

        `plot_func` runs once, here, before this returns (not where nothing is stored: RLA_MODE=disabled,
        ranks above 0): on your current pyplot figure, cleared, or on a fresh one when there is none
        (drawn by agg; your backend is not touched). The drawing stays pyplot's current figure until
        the next call, except where your backend opens windows; further figures of `plot_func` are closed.

        Args:
            name: below the results folder, png without a known extension.
            plot_func: draws by pyplot calls.
            cover: replace a file with an explicit extension.
            legend_outside: put the legend to the right of the axes.
            pretty_plot: larger labels (18), ticks (14) and title (13), and a grid.
            xlabel: label of the x axis, none by default.
            ylabel: label of the y axis, none by default.
            title: title, none by default.
            add_timestamp: put the time-step before the name.
            close_all_fig: close all pyplot figures, yours too.
            results_dir: another folder; outside of the run's, the caller draws.
            **savefig_options: of `Figure.savefig`.

        Returns:
            The path of the file.
        """
        if makes_nothing(results_dir):
            return str(_figure_place(name, cover, add_timestamp, results_dir, savefig_options).path)
        from rla_client.media import figures  # noqa: PLC0415 - imports matplotlib
        from rla_client.media.render import decorate  # noqa: PLC0415 - for figures only

        stays_open = (figures.has_figures() or figures.can_stay()) and not close_all_fig
        with figures.canvas(close_all=close_all_fig) as current:
            plot_func()
            figure, axes = current()
            decoration = {
                "axes": axes,
                "texts": (xlabel, ylabel, title),
                "legend_outside": legend_outside,
                "pretty": pretty_plot,
            }
            place = _figure_place(name, cover, add_timestamp, results_dir, savefig_options)
            is_later = figures.when_seen(figure, functools.partial(decorate, {}, **decoration))
            if stays_open and not is_later:
                decorate(savefig_options, **decoration)
                decoration = {}
            if not place.stays:
                _record_figure(place, figure, savefig_options, decoration)
        return str(place.path)


class ImgRecorder:
    """Saves images."""

    @classmethod
    def save(
        cls,
        name: str,
        img: object,
        cover: bool = False,
        add_timestamp: bool = True,
        results_dir: str | os.PathLike[str] | None = None,
        **_unused: object,
    ) -> str:
        """Save an image, shape (H, W), (H, W, C) or (C, H, W) with C of 1, 3 (RGB) or 4 (RGBA).

        Args:
            name: below the results folder, png without a known extension.
            img: numpy array, torch tensor or PIL image. Floats are 0…1 when none is larger than
                1, else 0…255; other numbers are cut to 0…255.
            cover: replace a file with an explicit extension.
            add_timestamp: put the time-step before the name.
            results_dir: another folder; outside of the run's, the caller encodes.

        Returns:
            The path of the file.

        Raises:
            ArgumentError: the name or the image cannot be meant.
            NotConfiguredError: no run is open and no results_dir is given.
        """
        from rla_client.media.video import image_pixels  # noqa: PLC0415 - imports numpy

        place = find_place(
            name, FORMATS[JOB_IMAGE], cover=cover, add_timestamp=add_timestamp, results_dir=results_dir
        )
        if place.unmade:
            return str(place.path)
        pixels = image_pixels(img)
        if not place.stays:
            record_pixels(place, JOB_IMAGE, pixels, 1.0)
        return str(place.path)


def _figure_place(
    name: str,
    cover: bool,
    add_timestamp: bool,
    results_dir: str | os.PathLike[str] | None,
    options: dict[str, Any],
) -> Place:
    """Where a figure goes; savefig's `format` leaves the options."""
    return find_place(
        name,
        FORMATS[JOB_FIGURE],
        cover=cover,
        add_timestamp=add_timestamp,
        results_dir=results_dir,
        format_=options.pop("format", None),
    )


def _record_figure(
    place: Place, figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None = None
) -> None:
    """Have it drawn by the agent, else here; `decoration`: what render.decorate still has to do.

    Raises:
        ArgumentError: it is too large.
    """
    _check_size(place, figure, options)
    if can_send(place) and _send_figure(place, figure, options, decoration):
        return
    if decoration:
        from rla_client.media.render import decorate  # noqa: PLC0415 - for figures only

        decorate(options, **decoration)
    make_here(place, JOB_FIGURE, lambda file: figure.savefig(file, format=place.format, **options))


def _check_size(place: Place, figure: Figure, options: dict[str, Any]) -> None:
    if place.format in VECTOR_FORMATS:
        return
    import matplotlib as mpl  # noqa: PLC0415 - who has a figure has it

    dpi = options.get("dpi") or mpl.rcParams["savefig.dpi"]
    dpi = figure.get_dpi() if dpi == "figure" else dpi
    try:
        width, height = (float(inches) * float(dpi) for inches in figure.get_size_inches())
    except (TypeError, ValueError):  # savefig will refuse it, in its own words
        return
    if width * height > MAX_FIGURE_PIXELS:
        raise ArgumentError(
            f"figure {place.name} would have {width:.0f} x {height:.0f} pixels, at most {MAX_FIGURE_PIXELS} "
            f"are drawn: choose a smaller figsize or dpi, or a name that ends in .pdf"
        )


def _send_figure(
    place: Place, figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None
) -> bool:
    from rla_client.media.figures import NotPortableError, dump_figure  # noqa: PLC0415 - for figures only

    try:
        data = dump_figure(figure, options, decoration, place.format)
    except NotPortableError as error:
        warn_once(f"figure: {error}", f"figure {place.name} is drawn by the training process: {error}")
        return False
    return send_blob(place, JOB_FIGURE, (data,), {})


# -- figures from plain data ------------------------------------------------------------------------


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


def __getattr__(name: str) -> Any:  # noqa: ANN401 - VideoRecorder
    """`VideoRecorder`, loaded by those who use it: then memory for the first video is made ready.

    It imports numpy, as who has videos has already.
    """
    if name != "VideoRecorder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rla_client.media.jobs import expect_videos  # noqa: PLC0415
    from rla_client.media.video import VideoRecorder  # noqa: PLC0415

    expect_videos()
    globals()[name] = VideoRecorder
    return VideoRecorder
