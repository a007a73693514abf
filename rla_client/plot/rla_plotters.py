"""RLA's plotter of curves: `plot_func` (version 2).

Curves are grouped by `split_keys` (or by glob with `regs2legends`); a group shows the mean over its runs and
a band. Runs that were logged at other time-steps than the rest of their group are interpolated instead of
refused, and values come through the column cache of the database, so no cache file appears beside a CSV.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.layout import LOG, OTHER_RESULTS, TIME_STEP
from rla_client.contract.safe_names import check_relative
from rla_client.database.compare.group_key import group_text
from rla_client.database.curves.rank_tables import parse_ranks, rank_notes
from rla_client.database.curves.stream_tables import split_role
from rla_client.database.runs import Database
from rla_client.database.tree.items import check_table
from rla_client.plot.selected_runs import Selected, curve_order, default_key_to_legend, select, split_values
from rla_client.plot.style import (
    BAND_ALPHA,
    COLOURS,
    LINES,
    MARKERS,
    legend_columns,
    paper_style,
    shorten_steps,
    show,
)

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.lines import Line2D
    from numpy.typing import NDArray

    from rla_client.plot.smoothing import Curve


if TYPE_CHECKING:
    Shade = tuple[str, str, Any, NDArray[np.float64], NDArray[np.float64]]  # suffix, name, drawn, pair
PANEL_INCHES = (3.5, 2.6)
PRETTY_INCHES = (7.0, 5.0)
PRETTY_FONTS = {"legend": 15, "label": 20, "ticks": 16, "title": 18}
MARKERS_ON_A_CURVE = 10
Bands = dict[str, list[Any]]
Scores = dict[str, list[float]]
GroupOf = Callable[[Selected, str], tuple[str, str]]  # run, metric → key of its group, legend
PLOT_FOLDER = "easy_plot"


@dataclass(frozen=True, slots=True)
class Style:
    """Options of `plot_func` on how the figure looks; names and meanings as in RLA.

    Attributes:
        average_group: a group is its mean and a band; False draws every run.
        shaded_std, shaded_err, shaded_range: band of the standard deviation, the standard error, min to max.
        figsize: inches.
        legend_outside: beside or below the panels.
        resample: points of an even x grid with smoothing; 0 keeps the logged points.
        vary_len_plot: draw groups to the end of their longest run.
        smooth_step: decay length in grid steps, with `resample`.
        tiling: symmetric, vertical or horizontal, for several panels.
        title: of the figure.
        pretty: large fonts, scientific ticks, scores printed.
        bound_line: [(y, colour, line style, legend), …] horizontal lines.
        colors: instead of the colour-blind-safe ones.
        log: logarithmic y.
        ylim, xlim: limits.
        show_number: runs per group in the legend, but for `regs2legends`.
        skip_legend: no legend.
        use_marker, markers: markers on the curves.
        legend_ncol: columns of the legend.
        rescale_idx: scale x so that each run ends there.
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
    """Curves that make one line: one a run, of one metric."""

    legend: str
    curves: list[Curve] = field(default_factory=list)


def plot_func(  # noqa: PLR0913, PLR0917 - RLA's signature
    data_root: str,
    task_table_name: str,
    regs: str | Sequence[str],
    split_keys: str | Sequence[str],
    metrics: str | Sequence[str],
    use_buf: bool = False,  # noqa: ARG001 - RLA's flag; columns are always cached, and never stale
    verbose: bool = True,
    summarize_res: bool = True,
    x_bound: float | tuple[float, float] | None = None,
    xlabel: str | None = TIME_STEP,
    ylabel: str | Sequence[str] | None = None,
    scale_dict: Mapping[str, Callable[[Any], Any]] | None = None,
    regs2legends: Sequence[str] | None = None,
    hp_filter_dict: Mapping[str, Sequence[Any]] | None = None,
    key_to_legend_fn: Callable[..., str] = default_key_to_legend,
    split_by_metrics: bool = True,
    save_name: str | None = None,
    *,
    ranks: str | int | None = None,
    **style: object,
) -> tuple[dict[str, list[Any]], dict[str, list[float]]]:
    """Load runs, group them, and plot their metrics.

    The figure is shown and stays pyplot's current one, until the next call.

    Args:
        data_root: the database.
        task_table_name: task table.
        regs: globs below the table; one may stand alone, as in the next two.
        split_keys: hyper-parameters whose values make the groups; a missing one counts as `NF`.
        metrics: columns of progress.csv.
        use_buf: taken and not needed.
        verbose: print what is left out.
        summarize_res: print what each glob found.
        x_bound: time-steps beyond it are left out; a pair is (low, high).
        xlabel: of the x axis.
        ylabel: of the y axis, or one for each metric.
        scale_dict: {metric: function of its values, a pandas Series}.
        regs2legends: one legend for each of `regs`, shown as it is; the globs are the groups then.
        hp_filter_dict: {key: allowed values}.
        key_to_legend_fn: (values by key, split keys, metric, with metric) → legend. Groups to which it gives
            one legend are one.
        split_by_metrics: one panel for each metric; False draws all into one.
        save_name: file below `results/easy_plot/` of the database.
        ranks: of runs with several ranks: all, mean, or the number of one; see `Database.curves`.
        **style: see `Style`.

    Returns:
        (band by `<group>-se`, `-ss`, `-sr`: [matplotlib collection, centre or low, spread or
        high] of the last panel, and of each panel under `<metric>/<group>-se` when there are
        several; scores by `<legend>-err`, `-std`, `-range`: the last point's pair, of the last panel,
        and of each panel under `<legend>-err/<metric>` when there are several).

    Raises:
        ArgumentError: nothing was found, or options that cannot go together.
        NoSuchTableError: no such table.
    """
    with extra("plot", "plot_func"):
        import pandas as pd  # noqa: F401 - what follows imports it late
        from matplotlib import pyplot as plt

    options = _style(style)
    regs, split_keys, metrics = (
        [one] if isinstance(one, str) else list(one) for one in (regs, split_keys, metrics)
    )
    if regs2legends is not None and len(regs2legends) != len(regs):
        message = f"regs2legends needs one legend for each of the {len(regs)} regs, got {len(regs2legends)}"
        raise ArgumentError(message)
    database = Database(data_root)
    check_table(database.data_root, task_table_name)
    say = print if verbose else silent
    earlier = {(table, parent) for (table, _), parent in database.links().items()}
    found = [
        run
        for run in select(database.data_root, task_table_name, regs, LOG, hp_filter_dict, say)
        if (run.table, run.index) not in earlier
    ]
    if summarize_res:
        summarize(regs, found)
    curves, metrics = _load(database, found, metrics, (x_bound, ranks), say)
    joined = not split_by_metrics and len(metrics) > 1

    if regs2legends is not None:
        group_of = _by_glob(regs, list(map(str, regs2legends)), joined)
        options = replace(options, show_number=False)
    else:
        group_of = _by_keys(split_keys, key_to_legend_fn, joined)
    panels = _panels(found, curves, metrics, joined, group_of, scale_dict or {})
    if not any(group.curves for groups in panels.values() for group in groups.values()):
        message = (
            f"nothing to plot: {len(found)} run(s) of {task_table_name} match {regs}, "
            f"and none has numbers for {', '.join(metrics)}"
        )
        raise ArgumentError(message)
    labels = [ylabel] if isinstance(ylabel, str) else list(ylabel or metrics)
    from rla_client.media.figure_canvas import leave

    with paper_style():
        figure, legend, bands, scores = _draw(panels, options, xlabel, labels)
        if save_name is not None:
            _save(database, figure, legend, save_name)
    show()
    if not plt.isinteractive():
        leave(figure)
    if options.pretty:
        for name, (first, second) in scores.items():
            print(f"{name}: {first:.3f}, {second:.3f}")  # noqa: T201 - as RLA
    return bands, scores


def _style(style: Mapping[str, Any]) -> Style:
    unknown = sorted(set(style) - set(Style.__dataclass_fields__))
    if unknown:
        known = ", ".join(Style.__dataclass_fields__)
        message = f"plot_func has no option {', '.join(unknown)}; style options: {known}"
        raise ArgumentError(message)
    return Style(**style)


def silent(_: str) -> None:
    """For verbose=False."""


def summarize(regs: Sequence[str], found: Sequence[Selected]) -> None:
    """Print how many runs each glob found."""
    for reg in regs:
        print(f"{reg}: {sum(run.reg == reg for run in found)} run(s)")  # noqa: T201 - as RLA


def _load(
    database: Database,
    found: Sequence[Selected],
    metrics: Sequence[str],
    options: tuple[float | tuple[float, float] | None, str | int | None],
    say: Callable[[str], object],
) -> tuple[dict[tuple[str, str], Curve], list[str]]:
    """The curves of some runs, and the metrics: of each rank its own, where the ranks are apart."""
    from rla_client.database.curves.curve_frame import frame_shares

    bound, ranks = options
    pairs = [(run.table, run.index) for run in found]
    long = database.curves(pairs, metrics, bound=bound, ranks=ranks)
    for line in rank_notes(parse_ranks(ranks), frame_shares(long)):
        say(line)
    curves = {
        (str(index), str(metric)): (part["x"].to_numpy(), part["value"].to_numpy())
        for (index, metric), part in long.groupby(["index", "metric"], observed=True, sort=False)
    }
    return curves, list(long["metric"].cat.categories) if ranks == "all" else list(metrics)


def _by_glob(regs: Sequence[str], legends: Sequence[str], joined: bool) -> GroupOf:
    def group_of(run: Selected, metric: str) -> tuple[str, str]:
        place = list(regs).index(run.reg)
        return str(place), f"{legends[place]} {metric}" if joined else legends[place]

    return group_of


def _by_keys(split_keys: Sequence[str], to_legend: Callable[..., str], joined: bool) -> GroupOf:
    spelled: dict[tuple[str, str], str] = {}  # 1 and 1.0 are one group, called as its first run has it

    def group_of(run: Selected, metric: str) -> tuple[str, str]:
        values = split_values(run.hyper_param, split_keys)
        same = {key: spelled.setdefault((key, group_text(text)), text) for key, text in values.items()}
        legend = to_legend(same, split_keys, metric, joined)
        return legend, legend

    return group_of


def _panels(
    found: Sequence[Selected],
    curves: Mapping[tuple[str, str], Curve],
    metrics: Sequence[str],
    joined: bool,
    group_of: GroupOf,
    scale: Mapping[str, Callable[[Any], Any]],
) -> dict[str, dict[str, CurveGroup]]:
    """Panel (metric) → group key → group, groups sorted by key."""
    import numpy as np
    import pandas as pd

    panels: dict[str, dict[str, CurveGroup]] = {}
    for metric in metrics:
        groups = panels.setdefault("" if joined else metric, {})
        for run in found:
            key, legend = group_of(run, metric)
            name = f"{key} {metric}" if joined and legend != key else key
            group = groups.setdefault(name, CurveGroup(legend))
            curve = curves.get((run.index, metric))
            if curve is not None and len(curve[0]):
                scaled = scale.get(metric) or scale.get(split_role(metric)[0])
                values = scaled(pd.Series(curve[1])) if scaled is not None else curve[1]
                group.curves.append((curve[0], np.asarray(values, dtype=np.float64)))
    return {
        name: dict(sorted(groups.items(), key=lambda entry: curve_order(entry[0])))
        for name, groups in panels.items()
    }


def _save(database: Database, figure: Figure, legend: Legend | None, save_name: str) -> None:
    check_relative(save_name, what="save_name")
    path = database.data_root / OTHER_RESULTS / PLOT_FOLDER / save_name
    path.parent.mkdir(parents=True, exist_ok=True)
    extra = [legend] if legend is not None else None
    form = path.suffix.lstrip(".") or "png"
    with replacing(path, durable=False) as temp:
        figure.savefig(temp, bbox_inches="tight", bbox_extra_artists=extra, format=form)
    print(f"saved: {path}")  # noqa: T201 - as RLA


def _draw(
    panels: Mapping[str, Mapping[str, CurveGroup]], style: Style, xlabel: str | None, ylabels: Sequence[str]
) -> tuple[Any, Any, Bands, Scores]:
    """Draw everything.

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
    shown = ["-" if label.startswith("_") else label for label in labels]  # matplotlib leaves such ones out
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
