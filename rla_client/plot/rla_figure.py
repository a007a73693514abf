"""Figure of RLA's plotter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.plot.selected_runs import curve_order
from rla_client.plot.style import BAND_ALPHA, COLOURS, LINES, MARKERS, legend_columns, shorten_steps

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from rla_client.plot.smoothing import Curve


if TYPE_CHECKING:
    Shade = tuple[str, str, Any, NDArray[np.float64], NDArray[np.float64]]  # suffix, name, collection, pair


PANEL_INCHES = (3.5, 2.6)
PRETTY_INCHES = (7.0, 5.0)
PRETTY_FONTS = {"legend": 15, "label": 20, "ticks": 16, "title": 18}
MARKERS_ON_A_CURVE = 10
Bands = dict[str, list[Any]]
Scores = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Style:
    """Options of `plot_func` for the figure; names and meanings as in RLA.

    Attributes:
        average_group: draw a group as its mean and a band; False draws every run.
        shaded_std, shaded_err, shaded_range: band of the standard deviation, the standard error, min to max.
        figsize: inches.
        legend_outside: beside or below the panels.
        resample: points of an even x grid with smoothing; 0 keeps the logged points.
        vary_len_plot: draw groups to the end of their longest run.
        smooth_step: decay length in grid steps, with `resample`.
        tiling: symmetric, vertical or horizontal, for several panels.
        title: of the figure.
        pretty: large fonts, scientific ticks, scores printed.
        bound_line: horizontal lines as [(y, colour, line style, legend), …].
        colors: colours instead of the colour-blind-safe ones.
        log: logarithmic y.
        ylim, xlim: limits.
        show_number: show runs per group in the legend, except with `regs2legends`.
        skip_legend: draw no legend.
        use_marker, markers: draw markers on the curves.
        legend_ncol: columns of the legend.
        rescale_idx: scale x so that each run ends at this value.
    """

    average_group: bool = True
    shaded_std: bool = False
    shaded_err: bool = True
    shaded_range: bool = True
    figsize: tuple[float, float] | None = None
    legend_outside: bool = True
    resample: int = 0
    vary_len_plot: bool = False
    smooth_step: float = 1.0
    tiling: str | None = "symmetric"
    title: str | None = None
    pretty: bool = False
    bound_line: Sequence[Sequence[Any]] | None = None
    colors: Sequence[str] | None = None
    log: bool = False
    ylim: tuple[float, float] | None = None
    xlim: tuple[float, float] | None = None
    show_number: bool = True
    skip_legend: bool = False
    use_marker: bool = False
    markers: Sequence[str] | None = None
    legend_ncol: int | None = None
    rescale_idx: float | None = None

    def __post_init__(self) -> None:
        if self.vary_len_plot and self.resample > 0:
            message = "vary_len_plot draws the logged points, so it cannot go with resample"
            raise ArgumentError(message)
        if self.tiling not in {"symmetric", "vertical", "horizontal", None}:
            message = f"tiling is symmetric, vertical or horizontal, not {self.tiling!r}"
            raise ArgumentError(message)


@dataclass(slots=True)
class CurveGroup:
    """Curves of one metric and group, one per run."""

    legend: str
    curves: list[Curve] = field(default_factory=list)


def draw_figure(
    panels: Mapping[str, Mapping[str, CurveGroup]], style: Style, xlabel: str | None, ylabels: Sequence[str]
) -> tuple[Any, Any, Bands, Scores]:
    """Draw all panels.

    Returns:
        (figure, legend or None, bands, scores); see `plot_func`.
    """
    from matplotlib import pyplot as plt

    rows, columns = _tiles(len(panels), style.tiling)
    wide, high = PRETTY_INCHES if style.pretty else PANEL_INCHES
    figsize = style.figsize or (wide * columns, high * rows)
    figure, axes = plt.subplots(rows, columns, squeeze=False, figsize=figsize, layout="constrained")
    keys = sorted({key for groups in panels.values() for key in groups}, key=curve_order)
    bands: Bands = {}
    scores: Scores = {}
    lines: dict[str, tuple[Any, str]] = {}
    flat = list(axes.flat)
    for place, (metric, groups) in enumerate(panels.items()):
        panel, title = flat[place], metric if len(panels) > 1 else ""
        for key, group in groups.items():
            if not group.curves:
                continue
            line, shades = _draw_group(panel, group, style, keys.index(key))
            lines.setdefault(key, (line, _legend(group, style)))
            for suffix, name, *band in shades:
                bands[f"{key}{suffix}"] = band
                if title:
                    bands[f"{title}/{key}{suffix}"] = band
                score = [float(edge[-1]) for edge in band[1:]]
                scores[f"{group.legend}-{name}"] = score
                if title:
                    scores[f"{group.legend}-{name}/{title}"] = score
        _finish_panel(panel, title, style, xlabel)
        panel.set_ylabel(ylabels[place] if place < len(ylabels) else metric)
        if len(panels) == 1 and len(ylabels) > 1:
            panel.set_ylabel(", ".join(ylabels))
    for panel in flat[len(panels) :]:
        panel.set_visible(False)
    bound_lines = _bound_lines(flat[: len(panels)], style)
    _font_sizes(flat, style)
    entries = [lines[key] for key in sorted(lines, key=curve_order)] + bound_lines
    legend = None if style.skip_legend or not entries else _add_legend(figure, flat[0], entries, style)
    if style.title:
        figure.suptitle(style.title, fontsize=PRETTY_FONTS["title"] if style.pretty else None)
    return figure, legend, bands, scores


def _tiles(count: int, tiling: str | None) -> tuple[int, int]:
    if tiling in {"vertical", None}:
        return count, 1
    if tiling == "horizontal":
        return 1, count
    rows = int(math.sqrt(count))
    return rows, math.ceil(count / rows)


def _legend(group: CurveGroup, style: Style) -> str:
    return (
        f"{group.legend} ({len(group.curves)})" if style.show_number and style.average_group else group.legend
    )


def _draw_group(
    panel: Axes, group: CurveGroup, style: Style, place: int
) -> tuple[Line2D | None, list[Shade]]:
    from rla_client.plot.smoothing import align, sorted_curve

    colours = style.colors or COLOURS
    look: dict[str, Any] = {
        "color": colours[place % len(colours)],
        "linestyle": LINES[place // len(colours) % len(LINES)],
    }
    if style.use_marker:
        markers = style.markers or MARKERS
        look["marker"] = markers[place % len(markers)]
        look["markersize"] = 6 if style.pretty else 3.5
    curves = [_rescaled(sorted_curve(curve), style.rescale_idx) for curve in group.curves]
    if not style.average_group:
        line = None
        for curve in curves:
            xs, ys = align([curve], resample=style.resample, smooth_step=style.smooth_step)
            (line,) = panel.plot(xs, ys[0], **look, **_marker_gap(look, len(xs)))
        return line, []
    xs, values = align(
        curves, resample=style.resample, smooth_step=style.smooth_step, vary_len=style.vary_len_plot
    )
    return _draw_mean(panel, xs, values, look, style)


def _draw_mean(
    panel: Axes, xs: NDArray[np.float64], values: NDArray[np.float64], look: dict[str, Any], style: Style
) -> tuple[Line2D, list[Shade]]:
    import numpy as np

    mean, std = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    error = std / np.sqrt(len(values))
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    (line,) = panel.plot(xs, mean, **look, **_marker_gap(look, len(xs)))
    shades = []
    for wanted, suffix, name, edges, pair, alpha in (
        (style.shaded_err, "-se", "err", (mean - error, mean + error), (mean, error), BAND_ALPHA),
        (style.shaded_std, "-ss", "std", (mean - std, mean + std), (mean, std), BAND_ALPHA),
        (style.shaded_range, "-sr", "range", (low, high), (low, high), BAND_ALPHA / 2),
    ):
        if wanted:
            shade = panel.fill_between(xs, *edges, color=look["color"], alpha=alpha, linewidth=0)
            shades.append((suffix, name, shade, *pair))
    return line, shades


def _marker_gap(look: Mapping[str, Any], points: int) -> dict[str, Any]:
    return {"markevery": max(points // MARKERS_ON_A_CURVE, 1)} if "marker" in look else {}


def _rescaled(curve: Curve, end: float | None) -> Curve:
    xs, ys = curve
    return (xs, ys) if end is None or xs[-1] == 0 else (xs * (end / xs[-1]), ys)


def _finish_panel(panel: Axes, title: str, style: Style, xlabel: str | None) -> None:
    if title:
        panel.set_title(title)
    if xlabel is not None:
        panel.set_xlabel(xlabel)
    if style.log:
        panel.set_yscale("log")
    if style.ylim is not None:
        panel.set_ylim(style.ylim)
    if style.xlim is not None:
        panel.set_xlim(style.xlim)
    if style.pretty:
        from matplotlib.ticker import ScalarFormatter

        for axis in (panel.xaxis, panel.yaxis):
            if axis is panel.yaxis and style.log:
                continue
            formatter = ScalarFormatter(useMathText=True)
            formatter.set_powerlimits((-4, 4))
            axis.set_major_formatter(formatter)
    else:
        shorten_steps(panel)


def _bound_lines(panels: Sequence[Any], style: Style) -> list[tuple[Any, str]]:
    made = []
    for height, colour, line_style, legend in style.bound_line or ():
        for panel in panels:
            line = panel.axhline(height, color=colour, linestyle=line_style, linewidth=1)
        made.append((line, legend))
    return made


def _font_sizes(panels: Sequence[Any], style: Style) -> None:
    if not style.pretty:
        return
    for panel in panels:
        panel.xaxis.label.set_fontsize(PRETTY_FONTS["label"])
        panel.yaxis.label.set_fontsize(PRETTY_FONTS["label"])
        panel.title.set_fontsize(PRETTY_FONTS["title"])
        panel.tick_params(labelsize=PRETTY_FONTS["ticks"])
        for axis in (panel.xaxis, panel.yaxis):
            axis.offsetText.set_fontsize(PRETTY_FONTS["legend"])
        for line in panel.lines:
            line.set_linewidth(2.2)


def _add_legend(figure: Figure, panel: Axes, entries: Sequence[tuple[Line2D, str]], style: Style) -> Legend:
    handles, labels = [line for line, _ in entries], [label for _, label in entries]
    shown = ["-" if label.startswith("_") else label for label in labels]  # it omits labels that begin so
    size = PRETTY_FONTS["legend"] if style.pretty else None
    if style.legend_outside:
        fitting = legend_columns(labels, figure.get_figwidth(), 7 if style.pretty else 14)
        columns = style.legend_ncol or fitting
        legend = figure.legend(handles, shown, loc="outside lower center", ncols=columns, fontsize=size)
    else:
        legend = panel.legend(handles, shown, fontsize=size, ncols=style.legend_ncol or 1)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        text.set_text(label)
    return legend
