"""RLA's plotter of curves: `plot_func` (version 2).

Curves are grouped by `split_keys` (or by glob with `regs2legends`); a group shows the mean over its runs
and a band. Unlike in RLA, runs that were logged at other time-steps than the rest of their group are
interpolated instead of refused, and values are cached by the database instead of in a file beside the CSV.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError, extra
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.layout import LOG, OTHER_RESULTS, TIME_STEP
from rla_client.contract.safe_names import check_relative
from rla_client.database.compare.group_key import group_text
from rla_client.database.curves.rank_tables import parse_ranks, rank_notes
from rla_client.database.curves.stream_tables import split_role
from rla_client.database.database import Database
from rla_client.database.tree.items import check_table
from rla_client.plot.rla_figure import CurveGroup, Style, draw_figure
from rla_client.plot.selected_runs import Selected, curve_order, default_key_to_legend, select, split_values
from rla_client.plot.style import paper_style, show

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend

    from rla_client.plot.smoothing import Curve

GroupOf = Callable[[Selected, str], tuple[str, str]]  # run, metric → key of its group, legend
PLOT_FOLDER = "easy_plot"


def plot_func(  # noqa: PLR0913, PLR0917 - RLA's signature
    data_root: str,
    task_table_name: str,
    regs: str | Sequence[str],
    split_keys: str | Sequence[str],
    metrics: str | Sequence[str],
    use_buf: bool = False,  # noqa: ARG001 - RLA's flag; columns are always cached
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

    The figure is shown and stays pyplot's current figure until the next call.

    Args:
        data_root: the database.
        task_table_name: task table.
        regs: globs below the table; a single string is allowed, also for the next two.
        split_keys: hyper-parameters to group by; a missing one counts as `NF`.
        metrics: columns of progress.csv.
        use_buf: ignored.
        verbose: print what is left out.
        summarize_res: print the number of runs of each glob.
        x_bound: largest time-step, or (low, high).
        xlabel: label of the x axis.
        ylabel: label of the y axis, or one for each metric.
        scale_dict: {metric: function of its values, a pandas Series}.
        regs2legends: a legend for each of `regs`; the globs are the groups then.
        hp_filter_dict: {key: allowed values}.
        key_to_legend_fn: (values by key, split keys, metric, with metric) → legend. Groups with the same
            legend are merged.
        split_by_metrics: draw a panel for each metric; False draws all into one.
        save_name: file below `results/easy_plot/` of the database.
        ranks: for runs with several ranks: all, mean, or the number of one; see `Database.curves`.
        **style: see `Style`.

    Returns:
        (band by `<group>-se`, `-ss`, `-sr`: [matplotlib collection, centre or low, spread or
        high] of the last panel, and of each panel under `<metric>/<group>-se` when there are
        several; scores by `<legend>-err`, `-std`, `-range`: the last point's pair, of the last panel,
        and of each panel under `<legend>-err/<metric>` when there are several).

    Raises:
        ArgumentError: no run or no number was found, or options exclude each other.
        NoSuchTableError: no such table.
    """
    with extra("plot", "plot_func"):
        import pandas as pd  # noqa: F401 - later imports of it must not fail
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
        figure, legend, bands, scores = draw_figure(panels, options, xlabel, labels)
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
    """Print nothing, for verbose=False."""


def summarize(regs: Sequence[str], found: Sequence[Selected]) -> None:
    """Print the number of runs of each glob."""
    for reg in regs:
        print(f"{reg}: {sum(run.reg == reg for run in found)} run(s)")  # noqa: T201 - as RLA


def _load(
    database: Database,
    found: Sequence[Selected],
    metrics: Sequence[str],
    options: tuple[float | tuple[float, float] | None, str | int | None],
    say: Callable[[str], object],
) -> tuple[dict[tuple[str, str], Curve], list[str]]:
    """Curves of runs, and the names of the metrics, one for each rank if ranks are drawn apart."""
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
    spelled: dict[tuple[str, str], str] = {}  # 1 and 1.0 are one group, named by its first run

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
