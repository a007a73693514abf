"""Recorder of figures.

The training loop pays for the pickle of a figure and one JOB frame; a process of the agent makes the file
(`render.py`). The complete file appears a moment later. The caller draws the figure itself, with one warning
for each reason, if the figure cannot be sent (`figure_pickle.py`), if no agent runs, or if there is no spool.
Files outside of the run's results folder are always written by the caller. With RLA_MODE=disabled and on
ranks above 0 no file is made.

`add_timestamp` puts the time-step before the last part of a name; a name without a known extension gets the
default one. An existing file with an explicit extension is not replaced unless `cover`. Invalid arguments
raise errors; failures of disk or agent are warnings.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.job.media_job import (
    FORMATS,
    JOB_FIGURE,
    MAX_FIGURE_PIXELS,
    VECTOR_FORMATS,
)
from rla_client.media.job_sender import can_send, make_here, send_blob
from rla_client.media.recording_place import RecordingPlace, find_place
from rla_client.media.recording_target import makes_nothing, warn_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure


class MatplotlibRecorder:
    """Saves matplotlib figures, with RLA's name and signature."""

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
            fig: the figure (or an object with an attribute `figure`); by default pyplot's current one.
            cover: replace a file with an explicit extension.
            add_timestamp: put the time-step before the name.
            results_dir: another folder; outside of the run's results, the caller draws.
            **savefig_options: of `Figure.savefig`.

        Returns:
            The path of the file. If the agent makes it, it appears a moment later.

        Raises:
            ArgumentError: the name, figure or format is invalid.
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

        `plot_func` is called once before this returns, unless nothing is stored (RLA_MODE=disabled, ranks
        above 0). It draws on your current pyplot figure, cleared, or on a new one with an agg canvas, which
        leaves your backend as it is. The drawing stays pyplot's current figure until the next call, unless
        your backend opens windows; further figures of `plot_func` are closed.

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
            close_all_fig: close all pyplot figures, including yours.
            results_dir: another folder; outside of the run's results, the caller draws.
            **savefig_options: of `Figure.savefig`.

        Returns:
            The path of the file.
        """
        if makes_nothing(results_dir):
            return str(_figure_place(name, cover, add_timestamp, results_dir, savefig_options).path)
        from rla_client.media import figure_canvas  # noqa: PLC0415 - imports matplotlib
        from rla_client.media.render import decorate  # noqa: PLC0415 - for figures only

        stays_open = (figure_canvas.has_figures() or figure_canvas.can_stay()) and not close_all_fig
        with figure_canvas.canvas(close_all=close_all_fig) as current:
            plot_func()
            figure, axes = current()
            decoration = {
                "axes": axes,
                "texts": (xlabel, ylabel, title),
                "legend_outside": legend_outside,
                "pretty": pretty_plot,
            }
            place = _figure_place(name, cover, add_timestamp, results_dir, savefig_options)
            is_later = figure_canvas.when_seen(figure, functools.partial(decorate, {}, **decoration))
            if stays_open and not is_later:
                decorate(savefig_options, **decoration)
                decoration = {}
            if not place.stays:
                _record_figure(place, figure, savefig_options, decoration)
        return str(place.path)


def _figure_place(
    name: str,
    cover: bool,
    add_timestamp: bool,
    results_dir: str | os.PathLike[str] | None,
    options: dict[str, Any],
) -> RecordingPlace:
    """The place of a figure; `format` is removed from the options."""
    return find_place(
        name,
        FORMATS[JOB_FIGURE],
        cover=cover,
        add_timestamp=add_timestamp,
        results_dir=results_dir,
        format_=options.pop("format", None),
    )


def _record_figure(
    place: RecordingPlace, figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None = None
) -> None:
    """Have the figure drawn by the agent, or else draw it here.

    Args:
        place: of the file.
        figure: the figure.
        options: of savefig.
        decoration: arguments of `render.decorate`, which is not called yet.

    Raises:
        ArgumentError: the figure is too large.
    """
    _check_size(place, figure, options)
    if can_send(place) and _send_figure(place, figure, options, decoration):
        return
    if decoration:
        from rla_client.media.render import decorate  # noqa: PLC0415 - for figures only

        decorate(options, **decoration)
    make_here(place, JOB_FIGURE, lambda file: figure.savefig(file, format=place.format, **options))


def _check_size(place: RecordingPlace, figure: Figure, options: dict[str, Any]) -> None:
    if place.format in VECTOR_FORMATS:
        return
    import matplotlib as mpl  # noqa: PLC0415 - loaded by whoever has a figure

    dpi = options.get("dpi") or mpl.rcParams["savefig.dpi"]
    dpi = figure.get_dpi() if dpi == "figure" else dpi
    try:
        width, height = (float(inches) * float(dpi) for inches in figure.get_size_inches())
    except (TypeError, ValueError):  # savefig will raise its own error
        return
    if width * height > MAX_FIGURE_PIXELS:
        raise ArgumentError(
            f"figure {place.name} would have {width:.0f} x {height:.0f} pixels, at most {MAX_FIGURE_PIXELS} "
            f"are drawn: choose a smaller figsize or dpi, or a name that ends in .pdf"
        )


def _send_figure(
    place: RecordingPlace, figure: Figure, options: dict[str, Any], decoration: dict[str, Any] | None
) -> bool:
    from rla_client.media.figure_pickle import NotPortableError, dump_figure  # noqa: PLC0415 - for figures only

    try:
        data = dump_figure(figure, options, decoration, place.format)
    except NotPortableError as error:
        warn_once(f"figure: {error}", f"figure {place.name} is drawn by the training process: {error}")
        return False
    return send_blob(place, JOB_FIGURE, (data,), {})
