"""`curves(df, metric, group=…)`: learning curves from DataFrames of runs, with honest bands.

Two steps: `gather` reads the curves and puts their runs into groups, `draw` draws them. What a
reader of the figure has to know of the runs behind it, `notes` says in words; `rla plot` prints it.
Runs without the metric are in no group and no count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.spelling import full_name
from rla_client.database.curves import FULL_NAMES
from rla_client.plot.align import align
from rla_client.plot.statistics import curve_band
from rla_client.plot.style import BAND_ALPHA, COLUMN_INCHES, look, paper_style, shorten_steps

if TYPE_CHECKING:
    import pandas as pd

    from rla_client.database.runs import Database

DPI = 300
_PANEL_HEIGHT = 0.72  # of the width
_LEGEND_ROW_INCHES = 0.16
BAND_NAMES = {  # for captions
    "ci": "mean, 95 % CI",
    "iqm": "IQM, 95 % CI",
    "stderr": "mean ± standard error",
    "std": "mean ± std",
    "range": "mean, min to max",
    "median": "median, quartiles",
}
ENDED_EARLY = ("failed", "killed", "interrupted")  # states of runs that may not have learnt to their end
SAME_END = 0.98  # of the longest: a live run and its siblings differ by some rows; a step there is not seen
RunName = tuple[str, str]  # (table, index): two tables may hold runs of the same moment


@dataclass(frozen=True, slots=True)
class Gathered:
    """The curves of some runs, ready to be drawn.

    Attributes:
        metrics: names, one panel each.
        x: column that is x.
        points: what `Database.curves` gives.
        full_names: metric and x as asked for → name of the column.
        groups: label → its runs, in the order of the labels.
        by: columns that the groups are made by; empty for one group.
        states: run → state, of the runs in groups.
    """

    metrics: list[str]
    x: str
    points: pd.DataFrame
    full_names: dict[str, str]
    groups: dict[str, set[RunName]]
    by: list[str]
    states: dict[RunName, str | None]


def curves(  # noqa: PLR0913 - a plot has many knobs, all but two by name
    df: pd.DataFrame,
    metric: str | Sequence[str],
    *,
    database: Database | None = None,
    group: str | Sequence[str] | None = None,
    x: str = "time-step",
    band: str = "ci",
    resample: int = 200,
    smooth: float = 0.0,
    bound: float | tuple[float, float] | None = None,
    width: float = COLUMN_INCHES,
    ylabel: str | None = None,
    legend: bool = True,
) -> Any:  # noqa: ANN401 - a matplotlib Figure
    """Plot metrics over time, one curve a group, averaged over its runs.

    Args:
        df: rows of `database.runs(...)`; its columns can be grouped by.
        metric: one or several; each gets its own panel, below each other. The last parts of a name will do
            where they fit one metric only; so for `group` and `x`.
        database: the database of these runs; None: the one that made `df`.
        group: column(s) whose values make the groups; without, one for each table that has the metric.
        x: column of progress.csv.
        band: ci (95 % bootstrap of the mean), iqm, stderr, std, range, median, none.
        resample: points on the x axis at most.
        smooth: decay length of a moving average in points; 0 interpolates only.
        bound: keep x up to this, or inside (low, high).
        width: of the figure in inches; 3.3 is a column of a paper.
        ylabel: instead of the metric's name.
        legend: write it, below the panels.

    Returns:
        The figure; save it by `.savefig(path)`.

    Raises:
        ArgumentError: an unknown group column or band, no run has the metric, or `df` does not
            say which database it comes from.
    """
    found = gather(df, metric, database=database, group=group, x=x, bound=bound)
    return draw(found, band=band, resample=resample, smooth=smooth, width=width, ylabel=ylabel, legend=legend)


def gather(
    df: pd.DataFrame,
    metric: str | Sequence[str],
    *,
    database: Database | None = None,
    group: str | Sequence[str] | None = None,
    x: str = "time-step",
    bound: float | tuple[float, float] | None = None,
) -> Gathered:
    """Read the curves of some runs and put them into groups; see `curves` for arguments and errors."""
    database = database or _database_of(df)
    metrics = [metric] if isinstance(metric, str) else list(dict.fromkeys(metric))
    by = [] if group is None else [group] if isinstance(group, str) else list(group)
    by = [full_name(name, map(str, df.columns), f"no column {name!r} to group by") for name in by]
    points = database.curves(df, metrics, x=x, bound=bound)
    having = set(points[["table", "index"]].drop_duplicates().itertuples(index=False, name=None))
    if not having:
        message = (
            "none of these runs has this metric with numbers\nhint: `rla show RUN` lists a run's metrics"
        )
        raise ArgumentError(message)
    if not by and len({table for table, _ in having}) > 1:
        by = ["table"]
    kept = df[[pair in having for pair in zip(df["table"], df["index"], strict=True)]]
    names = list(zip(kept["table"], kept["index"], strict=True))
    states = dict(zip(names, kept["state"], strict=True)) if "state" in kept.columns else {}
    return Gathered(metrics, x, points, points.attrs[FULL_NAMES], _groups(kept, names, by), by, states)


def draw(  # noqa: PLR0913 - a plot has many knobs, all but one by name
    found: Gathered,
    *,
    band: str = "ci",
    resample: int = 200,
    smooth: float = 0.0,
    width: float = COLUMN_INCHES,
    ylabel: str | None = None,
    legend: bool = True,
) -> Any:  # noqa: ANN401 - a matplotlib Figure
    """Draw what `gather` gave; see `curves` for arguments and errors."""
    import matplotlib.figure

    groups, metrics = found.groups, found.metrics
    with paper_style():
        rows = -(-len(groups) // _legend_columns(groups, width)) if legend and len(groups) > 1 else 0
        height = width * _PANEL_HEIGHT * len(metrics) + rows * _LEGEND_ROW_INCHES
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained", dpi=DPI)
        panels = figure.subplots(len(metrics), 1, squeeze=False)[:, 0]
        handles: dict[str, Any] = {}
        for axes, name in zip(panels, metrics, strict=True):
            _panel(axes, found, name, (band, resample, smooth))
            axes.set_ylabel(ylabel or found.full_names[name])
            shorten_steps(axes)
            lines, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, lines, strict=True))  # a group may have one of the metrics alone
        panels[-1].set_xlabel(found.full_names[found.x])
        if rows:
            figure.align_ylabels()
            shown = [label for label in groups if label in handles]
            figure.legend(
                [handles[label] for label in shown],
                shown,
                loc="outside lower center",
                ncols=_legend_columns(groups, width),
            )
    return figure


def notes(found: Gathered) -> list[str]:
    """What the curves hide: which runs are averaged that a reader may not expect, and steps in the mean."""
    told = []
    tables = {table for members in found.groups.values() for table, _ in members}
    if "table" in found.by:
        told.append(f"a curve for each of {len(tables)} tables" if found.by == ["table"] else "")
    elif any(len({table for table, _ in members}) > 1 for members in found.groups.values()):
        told.append(f"runs of {len(tables)} tables averaged together; --group table,… keeps them apart")
    ended = [state for state in found.states.values() if state in ENDED_EARLY]
    if ended:
        listing = " and ".join(f"{ended.count(state)} {state}" for state in ENDED_EARLY if state in ended)
        told.append(f"with {listing}")
    if any(_ends_apart(found, name) for name in found.metrics):
        told.append("runs of different length: the mean steps where one ends, --bound cuts before")
    return [text for text in told if text]


def _ends_apart(found: Gathered, metric: str) -> bool:
    """Whether a mean goes on without some of its runs."""
    rows = found.points[found.points["metric"] == metric]
    xs = rows.groupby(["table", "index"], observed=True)["x"]
    spans = xs.agg(["min", "max"])
    # a last blank cell is no end
    spans["next"] = spans["max"] + xs.agg(lambda x: x.diff().median()).fillna(0)
    for members in found.groups.values():
        mine = spans[[name in members for name in spans.index]]
        if len(mine) > 1:
            first, last = mine["min"].min(), mine["max"].max()
            short = mine["max"] - first < (last - first) * SAME_END
            if (short & (mine["next"] < last)).any():
                return True
    return False


def _database_of(df: pd.DataFrame) -> Database:
    from rla_client.database.runs import DATA_ROOT_ATTRIBUTE, Database

    if DATA_ROOT_ATTRIBUTE not in df.attrs:
        message = "this DataFrame does not come from a database's runs(); give database=…"
        raise ArgumentError(message)
    return Database(df.attrs[DATA_ROOT_ATTRIBUTE])


def _groups(df: pd.DataFrame, names: Sequence[RunName], by: Sequence[str]) -> dict[str, set[RunName]]:
    """Label → its runs, in the order of the labels."""
    if not by:
        return {f"all ({len(names)})": set(names)}
    labels: dict[Any, set[RunName]] = {}
    columns = [df[name] for name in by]
    for row, run in enumerate(names):
        values = tuple(column.iloc[row] for column in columns)
        labels.setdefault(values, set()).add(run)

    def key(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple((0, float(v), "") if isinstance(v, int | float) else (1, 0.0, str(v)) for v in values)

    return {
        ", ".join(f"{name}={_text(value)}" for name, value in zip(by, values, strict=True))
        + f" ({len(labels[values])})": labels[values]
        for values in sorted(labels, key=key)
    }


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _legend_columns(groups: dict[str, set[RunName]], width: float) -> int:
    longest = max(map(len, groups)) + 5
    return max(1, min(len(groups), int(width * 14 / longest)))  # about 14 characters of 7 points an inch


def _panel(
    axes: Any,  # noqa: ANN401 - a matplotlib Axes
    gathered: Gathered,
    metric: str,
    options: tuple[str, int, float],
) -> None:
    band, resample, smooth = options
    rows = gathered.points[gathered.points["metric"] == metric]
    parts = {
        run: (part["x"].to_numpy(), part["value"].to_numpy())
        for run, part in rows.groupby(["table", "index"], observed=True)
    }
    if not parts:
        message = (
            f"none of these runs has {metric!r} with numbers\nhint: `rla show RUN` lists a run's metrics"
        )
        raise ArgumentError(message)
    for place, (label, runs) in enumerate(gathered.groups.items()):
        found = [curve for run, curve in parts.items() if run in runs]
        if not found:
            continue
        longest = max(len(curve[0]) for curve in found)  # a finer grid would smooth over nothing
        grid = min(resample, longest) if smooth > 0 else 0
        xs, values = align(found, resample=grid, smooth_step=smooth or 1.0, vary_len=True)
        if len(xs) > resample > 1:
            kept = _spread_over(len(xs), resample)
            xs, values = xs[kept], values[:, kept]
        centre, low, high = curve_band(values, band)
        colour, line = look(place)
        axes.plot(xs, centre, color=colour, linestyle=line, label=label)
        if len(found) > 1 and band != "none":
            axes.fill_between(xs, low, high, color=colour, alpha=BAND_ALPHA, linewidth=0)


def _spread_over(count: int, points: int) -> Any:  # noqa: ANN401
    """Places of `points` entries spread over `count`, both ends among them."""
    import numpy as np

    return np.linspace(0, count - 1, points).round().astype(int)
