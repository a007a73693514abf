"""A report of runs as a PDF: a page of facts, then a page for each metric."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.database.clock import clock
from rla_client.database.compare.group_table import settings, tabulate_groups
from rla_client.database.compare.groups import mean_and_interval
from rla_client.database.text.paper_table import Estimate, estimate_text
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import table_text
from rla_client.plot.frames import draw, gather, notes
from rla_client.plot.style import paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rla_client.database.compare.group_table import GroupTable
    from rla_client.database.compare.groups import Group
    from rla_client.database.records.record import Record
    from rla_client.database.runs import Database

PAGE = (8.27, 11.69)  # A4, inches
MARGIN = 0.08  # of the page
LINES, LINE_CHARS = 70, 100  # of a page, in the letters below
LETTERS = 8  # points
MAX_METRICS = 100


def write_pdf(
    out: Path,
    database: Database,
    records: Sequence[Record],
    *,
    group: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    smooth: float = 0.0,
) -> int:
    """Write the file whole or not at all; how many pages it has.

    Args:
        out: the file; its folder exists.
        database: of the runs.
        records: the runs, oldest first.
        group: parameters, one curve for each value; None: those that differ, but for the seed.
        metrics: to draw; none: the likely one.
        smooth: moving average over so many points.

    Raises:
        ArgumentError: none of the runs has the metrics, or these are more than `MAX_METRICS`.
        UnknownNameError: no run has one of the names.
    """
    from matplotlib.backends.backend_pdf import PdfPages

    if len(metrics) > MAX_METRICS:
        raise ArgumentError(f"a report has {MAX_METRICS} metrics at most, not {len(metrics)}")
    by = settings(records) if group is None else list(group)
    table = tabulate_groups(records, by, metrics, clock())
    frame = database.frame(records)
    with paper_style(), replacing(out, durable=False) as temp, PdfPages(temp) as pages:
        text = _facts(database, records, table)
        for start in range(0, len(text), LINES):
            pages.savefig(_text_page(text[start : start + LINES]))
        for metric in table.metrics:
            found = gather(frame, metric, database=database, group=table.by or None)
            figure = draw(found, smooth=smooth, width=PAGE[0] * (1 - 2 * MARGIN))
            figure.suptitle(
                "; ".join(note.partition("; --")[0] for note in notes(found)), fontsize=LETTERS - 1
            )
            pages.savefig(figure)
        count: int = pages.get_pagecount()
    return count


def _facts(database: Database, records: Sequence[Record], table: GroupTable) -> list[str]:
    now = clock()
    states = Counter(record.shown_state(now) for record in records)
    dates = sorted(record.date[:10] for record in records)
    lines = [
        f"{len(records)} run(s) of {clean(database.data_root.absolute())}",
        f"from {dates[0]} to {dates[-1]}",
        ", ".join(f"{count} {state}" for state, count in states.items()),
        time.strftime("written on %Y-%m-%d %H:%M", time.localtime(now)),
        "",
    ]
    rows = [
        [*same[0].texts, same[0].states.total(), *(map(_estimate, same) if table.metrics else ())]
        for same in table.rows
    ]
    lines += table_text([*table.by, "runs", *table.metrics], rows, LINE_CHARS).split("\n")
    lines += ["", "Mean of the last values over runs, with the 95 % interval of the mean (Student's t)."]
    if unequal := table.of_unequal_length():
        lines += textwrap.wrap(f"Runs of different length are averaged in: {'; '.join(unequal)}", LINE_CHARS)
    return lines


def _estimate(group: Group) -> str:
    some = len(group.numbers) if group.states.total() > len(group.numbers) else None
    return estimate_text(Estimate(*mean_and_interval(group.numbers), some))


def _text_page(lines: Sequence[str]) -> Figure:
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=PAGE)
    shown = "\n".join(line.replace("$", r"\$") for line in lines)
    figure.text(MARGIN, 1 - MARGIN, shown, family="monospace", fontsize=LETTERS, va="top")
    return figure
