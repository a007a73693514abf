"""PDF report of runs: pages of facts, then a page for each metric."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.database.clock import clock
from rla_client.database.compare.group_table import settings, tabulate_groups
from rla_client.database.compare.mean_interval import mean_and_interval
from rla_client.database.text.paper_table import Estimate, estimate_text
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import table_text
from rla_client.plot.frames import draw, gather, notes
from rla_client.plot.style import paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rla_client.database.compare.group_table import GroupTable
    from rla_client.database.compare.groups import Group
    from rla_client.database.database import Database
    from rla_client.database.records.record import Record
    from rla_client.plot.frames import Gathered

PAGE = (8.27, 5.83)  # inches: A5 landscape, with the proportions of A4
MARGIN = 0.07  # share of the page's height
SIDE = MARGIN * PAGE[1] / PAGE[0]  # the same length as a share of the width
LINES, LINE_CHARS = 34, 100  # that fit on a page below its title
LETTERS, TITLE = 8, 14  # points
BAND_TEXT = "mean over the runs of a group, with its 95 % bootstrap interval"
MAX_METRICS = 100
MAX_NAMED = 3  # tables that the title names


def write_pdf(
    out: Path,
    database: Database,
    records: Sequence[Record],
    *,
    group: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    smooth: float = 0.0,
) -> int:
    """Write the report atomically; returns the number of pages.

    Args:
        out: the file; its folder exists.
        database: database of the runs.
        records: the runs, oldest first.
        group: parameters with a curve for each value; None: those that differ, except the seed.
        metrics: metrics to draw; empty: the likely one.
        smooth: number of points of the moving average.

    Raises:
        ArgumentError: no run has the metrics, or there are more than `MAX_METRICS`.
        UnknownNameError: no run has one of the names.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    by = settings(records) if group is None else list(group)
    table = tabulate_groups(records, by, metrics, clock())
    if len(table.metrics) > MAX_METRICS:  # a metric of several writers counts for each
        raise ArgumentError(f"a report has {MAX_METRICS} metrics at most, not {len(table.metrics)}")
    frame = database.frame(records)
    with paper_style(), replacing(out, durable=False) as temp, PdfPages(temp) as pages:
        title, text = _title(records), _facts(database, records, table)
        for start in range(0, len(text), LINES):
            pages.savefig(_text_page(title, text[start : start + LINES]))
        for metric in table.metrics:
            found = gather(frame, metric, database=database, group=table.by or None)
            figure = draw(found, smooth=smooth, width=PAGE[0], height=PAGE[1])
            _head(figure, metric, found)
            pages.savefig(figure)
        count: int = pages.get_pagecount()
    return count


def _head(figure: Figure, metric: str, found: Gathered) -> None:
    """Add to a figure margins, the metric's name and notes on the curves."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
        engine.set(rect=(SIDE, 0.01, 1 - 2 * SIDE, 0.99 - MARGIN))
    axes = figure.axes[0]
    axes.set_title(_plain(metric), fontsize=TITLE - 2, fontweight="bold", loc="left", pad=20)
    texts = [BAND_TEXT] if any(len(members) > 1 for members in found.groups.values()) else []
    texts += [note.partition("; --")[0] for note in notes(found)]
    place: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 6), "textcoords": "offset points"}
    axes.annotate("; ".join(texts), (0, 1), fontsize=LETTERS - 1, color="dimgrey", **place)


def _title(records: Sequence[Record]) -> str:
    tables = list(dict.fromkeys(record.table for record in records))
    named = ", ".join(tables) if len(tables) <= MAX_NAMED else f"{len(tables)} tables"
    return f"{clean(named)}: {len(records)} run{'s' * (len(records) != 1)}"


def _plain(text: str) -> str:
    """Text escaped so that matplotlib does not parse it as a formula."""
    return text.replace("$", r"\$")


def _facts(database: Database, records: Sequence[Record], table: GroupTable) -> list[str]:
    now = clock()
    states = Counter(record.shown_state(now) for record in records)
    dates = sorted(record.date[:10] for record in records)
    lines = [
        f"runs     {', '.join(f'{count} {state}' for state, count in states.items())}",
        f"dates    {dates[0]} to {dates[-1]}",
        f"data     {clean(database.data_root.absolute())}",
        time.strftime("written  %Y-%m-%d %H:%M", time.localtime(now)),
        "",
    ]
    rows = [
        [*same[0].texts, same[0].states.total(), *(map(_estimate, same) if table.metrics else ())]
        for same in table.rows
    ]
    head, *body = table_text([*table.by, "runs", *table.metrics], rows, LINE_CHARS).split("\n")
    rule = "─" * max(map(len, [head, *body]))
    lines += [head, rule, *body, rule]
    lines += ["", "Mean of the last values over runs, with the 95 % interval of the mean (Student's t)."]
    if unequal := table.of_unequal_length():
        lines += textwrap.wrap(f"Runs of different length are averaged in: {'; '.join(unequal)}", LINE_CHARS)
    return lines


def _estimate(group: Group) -> str:
    some = len(group.numbers) if group.states.total() > len(group.numbers) else None
    return estimate_text(Estimate(*mean_and_interval(group.numbers), some))


def _text_page(title: str, lines: Sequence[str]) -> Figure:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=PAGE)
    figure.text(SIDE, 1 - MARGIN, _plain(title), fontsize=TITLE, fontweight="bold", va="top")
    shown = _plain("\n".join(lines))
    below = 1 - MARGIN - 2 * TITLE / 72 / PAGE[1]
    figure.text(SIDE, below, shown, family="monospace", fontsize=LETTERS, va="top")
    return figure
