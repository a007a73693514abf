"""Learning curves from DataFrames of runs.

`gather` reads the curves and groups their runs, `draw` draws them. `notes` gives texts about the averaged
runs for readers of the figure; `rla plot` prints them. Runs without the metric are in no group and are not
counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.text.spelling import full_name
from rla_client.database.compare.group_key import group_label, group_order, group_text
from rla_client.database.curves.band_kinds import Band
from rla_client.database.curves.progress_csv import FULL_NAMES
from rla_client.database.curves.rank_tables import Ranks, parse_ranks, rank_notes
from rla_client.database.text.safe_text import clean
from rla_client.database.tree.run_names import short_name, tracked_texts
from rla_client.plot.style import BAND_ALPHA, COLUMN_INCHES, legend_columns, look, paper_style, shorten_steps

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from rla_client.database.database import Database
    from rla_client.plot.smoothing import Curve


DPI = 300
_PANEL_HEIGHT = 0.72  # of the width
_LEGEND_ROW_INCHES = 0.16
ENDED_EARLY = (
    "failed",
    "killed",
    "interrupted",
)  # states of unfinished runs
MAX_DRAWN = 1e300  # larger values are not drawn: the difference of two could overflow
SAME_END = 0.98  # share of the longest run: a live run lags by some rows, which is invisible in the figure
RUN = "run"  # pseudo-column to group by: a curve for each run
RunName = tuple[str, str]  # (table, index): two tables may hold runs of the same moment


@dataclass(frozen=True, slots=True)
class Gathered:
    """Curves of runs, ready to be drawn.

    Attributes:
        metrics: names, one panel each.
        x: column of the x axis.
        points: result of `Database.curves`.
        full_names: metric or x as passed → name of the column.
        groups: label → its runs, in the order of the labels.
        by: columns to group by; empty for a single group.
        states: run → state, for the runs in groups.
        ranks: ranks of the curves, see `Database.curves`.
    """

    metrics: list[str]
    x: str
    points: pd.DataFrame
    full_names: dict[str, str]
    groups: dict[str, set[RunName]]
    by: list[str]
    states: dict[RunName, str | None]
    ranks: Ranks | None = None


def curves(  # noqa: PLR0913 - a plot has many options, all but two keyword-only
    df: pd.DataFrame,
    metric: str | Sequence[str],
    *,
    database: Database | None = None,
    group: str | Sequence[str] | None = None,
    x: str = "time-step",
    band: Band = "ci",
    resample: int = 200,
    smooth: float = 0.0,
    bound: float | tuple[float, float] | None = None,
    width: float = COLUMN_INCHES,
    ylabel: str | None = None,
    legend: bool = True,
    ranks: str | int | None = None,
) -> Figure:
    """Plot metrics over time, one curve per group, averaged over its runs.

    Args:
        df: rows of `database.runs(...)`; its columns can be grouped by.
        metric: one or several, one panel each, below each other. The last parts of a name are enough if
            only one metric matches; likewise for `group` and `x`.
        database: the database of these runs; None: the one that made `df`.
        group: columns to group by, or `run` for a curve per run; None: a curve for each table that has the
            metric.
        x: column of progress.csv.
        band: ci (95 % bootstrap of the mean), iqm, stderr, std, range, median, none.
        resample: largest number of points on the x axis.
        smooth: decay length of a moving average in points; 0 interpolates only.
        bound: keep points with x up to this value, or inside (low, high).
        width: width of the figure in inches; 3.3 is a column of a paper.
        ylabel: label instead of the metric's name.
        legend: whether to draw a legend below the panels.
        ranks: for runs with several ranks: all, mean, or the number of one; see `Database.curves`.

    Returns:
        The figure; save it by `.savefig(path)`.

    Raises:
        ArgumentError: an unknown group column or band, no run has the metric, or the database of `df` is
            unknown.
    """
    found = gather(df, metric, database=database, group=group, x=x, bound=bound, ranks=ranks)
    return draw(found, band=band, resample=resample, smooth=smooth, width=width, ylabel=ylabel, legend=legend)


def gather(  # noqa: PLR0913 - as `curves`, all but two keyword-only
    df: pd.DataFrame,
    metric: str | Sequence[str],
    *,
    database: Database | None = None,
    group: str | Sequence[str] | None = None,
    x: str = "time-step",
    bound: float | tuple[float, float] | None = None,
    ranks: str | int | None = None,
) -> Gathered:
    """Read the curves of runs and group them; see `curves` for arguments and errors."""
    database = database or _database_of(df)
    metrics = [metric] if isinstance(metric, str) else list(dict.fromkeys(metric))
    by = [] if group is None else [group] if isinstance(group, str) else list(group)
    if RUN in by and RUN not in df.columns:
        df = df.assign(**{RUN: _run_names(df)})
    by = [full_name(name, map(str, df.columns), f"no column {name!r} to group by") for name in by]
    points = database.curves(df, metrics, x=x, bound=bound, ranks=ranks)
    metrics = list(points["metric"].cat.categories)  # a metric of several roles is one for each
    having = {run for name in metrics for run in curves_of(points, name)}
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
    groups, full_names = _groups(kept, names, by), points.attrs[FULL_NAMES]
    return Gathered(metrics, x, points, full_names, groups, by, states, parse_ranks(ranks))


def draw(  # noqa: PLR0913 - a plot has many options, all but one keyword-only
    found: Gathered,
    *,
    band: Band = "ci",
    resample: int = 200,
    smooth: float = 0.0,
    width: float = COLUMN_INCHES,
    height: float | None = None,
    ylabel: str | None = None,
    legend: bool = True,
    serif: bool = False,
) -> Figure:
    """Draw gathered curves; see `curves` for errors.

    Args:
        found: the curves.
        band: see `curves`.
        resample: see `curves`.
        smooth: see `curves`.
        width: see `curves`.
        height: height of the figure in inches; None: by the number of panels.
        ylabel: see `curves`.
        legend: see `curves`.
        serif: use a font for papers set in Times.
    """
    import matplotlib.figure

    groups, metrics = found.groups, found.metrics
    with paper_style(serif=serif):
        rows = -(-len(groups) // legend_columns(groups, width)) if legend and len(groups) > 1 else 0
        height = height or width * _PANEL_HEIGHT * len(metrics) + rows * _LEGEND_ROW_INCHES
        figure = matplotlib.figure.Figure(figsize=(width, height), layout="constrained", dpi=DPI)
        panels = figure.subplots(len(metrics), 1, squeeze=False)[:, 0]
        handles: dict[str, Any] = {}
        for axes, name in zip(panels, metrics, strict=True):
            _panel(axes, found, name, (band, resample, smooth))
            axes.set_ylabel(ylabel or found.full_names[name])
            shorten_steps(axes)
            lines, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, lines, strict=True))  # a group may lack some of the metrics
        panels[-1].set_xlabel(found.full_names[found.x])
        if rows:
            figure.align_ylabels()
            shown = [label for label in groups if label in handles]
            figure.legend(
                [handles[label] for label in shown],
                [label.replace("$", r"\$") for label in shown],  # otherwise parsed as a formula
                loc="outside lower center",
                ncols=legend_columns(groups, width),
            )
    return figure


def notes(found: Gathered) -> list[str]:
    """Notes on what the curves do not show: averaged ranks and runs, and jumps of the mean."""
    from rla_client.database.curves.curve_frame import frame_shares

    texts = rank_notes(found.ranks, frame_shares(found.points))
    tables = {table for members in found.groups.values() for table, _ in members}
    if "table" in found.by:
        texts.append(f"a curve for each of {len(tables)} tables" if found.by == ["table"] else "")
    elif any(len({table for table, _ in members}) > 1 for members in found.groups.values()):
        texts.append(f"runs of {len(tables)} tables averaged together; --group table,… keeps them apart")
    ended = [state for state in found.states.values() if state in ENDED_EARLY]
    if ended:
        listing = " and ".join(f"{ended.count(state)} {state}" for state in ENDED_EARLY if state in ended)
        texts.append(f"with {listing}")
    if any(_ends_apart(found, name) for name in found.metrics):
        texts.append(
            "runs of different length: the mean may jump where one ends; --bound X ends all curves at X"
        )
    return [text for text in texts if text]


def _ends_apart(found: Gathered, metric: str) -> bool:
    """Whether a mean continues after some of its runs have ended."""
    curves = {run: xs for run, (xs, _) in curves_of(found.points, metric).items()}
    spans = {run: (xs.min(), xs.max()) for run, xs in curves.items()}
    for members in found.groups.values():
        mine = {run: spans[run] for run in spans.keys() & members}
        if len(mine) > 1:
            first, last = min(low for low, _ in mine.values()), max(high for _, high in mine.values())
            short = [run for run, (_, high) in mine.items() if high - first < (last - first) * SAME_END]
            # an empty last cell is no earlier end
            if any(mine[run][1] + _usual_gap(curves[run]) < last for run in short):
                return True
    return False


def _usual_gap(xs: NDArray[np.float64]) -> float:
    import numpy as np

    return float(np.median(np.diff(xs))) if len(xs) > 1 else 0.0


def curves_of(points: pd.DataFrame, metric: str) -> dict[RunName, Curve]:
    """Curves of one metric by run, in the order of the categories of `points` (see `Database.curves`).

    Points with infinite x are left out. Groups are split at boundaries, because pandas takes 0.2 ms for each
    of ten thousand groups.
    """
    import numpy as np

    rows = points["metric"].to_numpy() == metric if len(points["metric"].unique()) > 1 else slice(None)
    tables, indexes = (points[name].astype("category").cat for name in ("table", "index"))
    table_codes, index_codes = (one.codes.to_numpy()[rows].astype(np.int64) for one in (tables, indexes))
    xs, ys = (points[name].to_numpy()[rows] for name in ("x", "value"))
    finite = np.isfinite(xs)
    if not finite.all():
        table_codes, index_codes, xs, ys = (one[finite] for one in (table_codes, index_codes, xs, ys))
    keys = table_codes * (len(indexes.categories) + 1) + index_codes
    if len(keys) and (np.diff(keys) < 0).any():
        order = np.argsort(keys, kind="stable")
        keys, table_codes, index_codes = keys[order], table_codes[order], index_codes[order]
        xs, ys = xs[order], ys[order]
    if not len(keys):
        return {}
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    ends = [*starts[1:].tolist(), len(keys)]
    table_names, index_names = tables.categories.tolist(), indexes.categories.tolist()
    return {
        (table_names[table_codes[start]], index_names[index_codes[start]]): (xs[start:end], ys[start:end])
        for start, end in zip(starts.tolist(), ends, strict=True)
    }


def _database_of(df: pd.DataFrame) -> Database:
    from rla_client.database.database import Database
    from rla_client.database.runs_frame import DATA_ROOT_ATTRIBUTE

    if DATA_ROOT_ATTRIBUTE not in df.attrs:
        message = "this DataFrame does not come from a database's runs(); give database=…"
        raise ArgumentError(message)
    return Database(df.attrs[DATA_ROOT_ATTRIBUTE])


def _run_names(df: pd.DataFrame) -> list[str]:
    """Names of runs in a legend: display name, else tracked parameters; with the date if not unique."""
    dates = [short_name(index) for index in df["index"]]
    tracked = [", ".join("=".join(pair) for pair in tracked_texts(index).items()) for index in df["index"]]
    display_names = list(df["display_name"]) if "display_name" in df.columns else [""] * len(dates)
    names = [one or other for one, other in zip(display_names, tracked, strict=True)]
    counts = Counter(names)
    return [
        name if name and counts[name] == 1 else f"{name} {date}".strip()
        for name, date in zip(names, dates, strict=True)
    ]


def _groups(df: pd.DataFrame, names: Sequence[RunName], by: Sequence[str]) -> dict[str, set[RunName]]:
    """Label → its runs, in the order of the labels."""
    if not by:
        return {f"all ({len(names)})": set(names)}
    groups: dict[tuple[str, ...], set[RunName]] = {}
    columns = [df[name] for name in by]
    for row, run in enumerate(names):
        groups.setdefault(tuple(group_text(column.iloc[row]) for column in columns), set()).add(run)
    if [*by] == [RUN]:  # the run's name is the label
        return {clean(texts[0]): members for texts, members in groups.items()}
    ordered = sorted(groups, key=lambda texts: list(map(group_order, texts)))
    return {f"{group_label(by, texts)} ({len(groups[texts])})": groups[texts] for texts in ordered}


def _panel(
    axes: Axes,
    gathered: Gathered,
    metric: str,
    options: tuple[Band, int, float],
) -> None:
    import numpy as np

    from rla_client.plot.bands import curve_band
    from rla_client.plot.smoothing import group_curves

    band, resample, smooth = options
    parts = curves_of(gathered.points, metric)
    if not parts:
        message = (
            f"none of these runs has {metric!r} with numbers\nhint: `rla show RUN` lists a run's metrics"
        )
        raise ArgumentError(message)
    for place, (label, runs) in enumerate(gathered.groups.items()):
        found = [curve for run, curve in parts.items() if run in runs]
        if not found:
            continue
        xs, values = group_curves(found, resample, smooth)
        centre, low, high = (
            np.where(np.abs(part) < MAX_DRAWN, part, np.nan) for part in curve_band(values, band)
        )
        colour, line = look(place)
        axes.plot(xs, centre, color=colour, linestyle=line, label=label)
        if len(found) > 1 and band != "none":
            axes.fill_between(xs, low, high, color=colour, alpha=BAND_ALPHA, linewidth=0)
