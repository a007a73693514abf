"""`curves(df, metric, group=…)`: learning curves from DataFrames of runs, with honest bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rla_client.errors import ArgumentError
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
        metric: one or several; each gets its own panel, below each other.
        database: the database of these runs; None: the one that made `df`.
        group: column(s) whose values make the groups; without, one group.
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
    import matplotlib.figure

    database = database or _database_of(df)
    metrics = [metric] if isinstance(metric, str) else list(metric)
    groups = _groups(df, group)
    long = database.curves(df, metrics, x=x, bound=bound)
    with paper_style():
        rows = -(-len(groups) // _legend_columns(groups, width)) if legend and len(groups) > 1 else 0
        height = width * _PANEL_HEIGHT * len(metrics) + rows * _LEGEND_ROW_INCHES
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained", dpi=DPI)
        panels = figure.subplots(len(metrics), 1, squeeze=False)[:, 0]
        for axes, name in zip(panels, metrics, strict=True):
            _panel(axes, long[long["metric"] == name], groups, (band, resample, smooth))
            axes.set_ylabel(ylabel or name)
            shorten_steps(axes)
        panels[-1].set_xlabel(x)
        if rows:
            handles, labels = panels[0].get_legend_handles_labels()
            figure.align_ylabels()
            figure.legend(handles, labels, loc="outside lower center", ncols=_legend_columns(groups, width))
    return figure


def _database_of(df: pd.DataFrame) -> Database:
    from rla_client.database.runs import DATA_ROOT_ATTRIBUTE, Database

    if DATA_ROOT_ATTRIBUTE not in df.attrs:
        message = "this DataFrame does not come from a database's runs(); give database=…"
        raise ArgumentError(message)
    return Database(df.attrs[DATA_ROOT_ATTRIBUTE])


def _groups(df: pd.DataFrame, group: str | Sequence[str] | None) -> dict[str, set[str]]:
    """Label → indices of its runs, in the order of the labels."""
    names = [] if group is None else [group] if isinstance(group, str) else list(group)
    missing = [name for name in names if name not in df.columns]
    if missing:
        message = f"no column {', '.join(missing)}; there are: {', '.join(map(str, df.columns))}"
        raise ArgumentError(message)
    if not names:
        return {f"all ({len(df)})": set(df["index"])}
    labels: dict[Any, set[str]] = {}
    columns = [df[name] for name in names]
    for row, index in enumerate(df["index"]):
        values = tuple(column.iloc[row] for column in columns)
        labels.setdefault(values, set()).add(index)

    def key(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple((0, float(v), "") if isinstance(v, int | float) else (1, 0.0, str(v)) for v in values)

    return {
        ", ".join(f"{name}={_text(value)}" for name, value in zip(names, values, strict=True))
        + f" ({len(labels[values])})": labels[values]
        for values in sorted(labels, key=key)
    }


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _legend_columns(groups: dict[str, set[str]], width: float) -> int:
    longest = max(map(len, groups)) + 5
    return max(1, min(len(groups), int(width * 14 / longest)))  # about 14 characters of 7 points an inch


def _panel(
    axes: Any,  # noqa: ANN401 - a matplotlib Axes
    long: pd.DataFrame,
    groups: dict[str, set[str]],
    options: tuple[str, int, float],
) -> None:
    band, resample, smooth = options
    drawn = 0
    for place, (label, indices) in enumerate(groups.items()):
        rows = long[long["index"].isin(indices)]
        found = [
            (part["x"].to_numpy(), part["value"].to_numpy())
            for _, part in rows.groupby("index", observed=True)
        ]
        if not found:
            continue
        drawn += 1
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
    if not drawn:
        message = "none of these runs has this metric with numbers; `rla show RUN` lists a run's metrics"
        raise ArgumentError(message)


def _spread_over(count: int, points: int) -> Any:  # noqa: ANN401
    """Places of `points` entries spread over `count`, both ends among them."""
    import numpy as np

    return np.linspace(0, count - 1, points).round().astype(int)
