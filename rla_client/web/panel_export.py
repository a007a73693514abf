"""Export of a panel.

It is a CSV, or the `rla plot` command that draws the panel.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from starlette.responses import StreamingResponse

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import TIME_STEP
from rla_client.web.curve_columns import ELAPSED, ROW
from rla_client.web.curves import MAX_RUNS, asked_ranks, read
from rla_client.web.request_arguments import asked_names, asked_range
from rla_client.web.run_registry import Site

MAX_CSV_ROWS = 1_000_000
DATE_LENGTH = 26  # of an index


def command(site: Site, asked: dict[str, Any]) -> str:
    """The `rla plot` command that draws what a panel shows; what it cannot say stands in a comment behind it.

    Args:
        site: the databases.
        asked: as `curves` has it; beside that `whole`, whether the runs are all that fit `where`, and
            `logY`.

    Raises:
        ArgumentError: something of that is not as it should be.
    """
    entries = site.chosen(asked.get("runs"))
    places = list(dict.fromkeys(entry.place for entry in entries)) or [0]
    roots = [str(site.databases[place].data_root) for place in places]
    x, group, span = str(asked.get("x") or TIME_STEP), asked.get("group"), asked.get("range")
    group = None if group is None else asked_names(group, "group")
    options: list[tuple[str, object]] = [("data-root", roots[0])]
    if not asked.get("whole"):
        own = [entry.record.index[:DATE_LENGTH] for entry in entries if entry.place == places[0]]
        options += [("run", date) for date in own]
    elif asked.get("where"):
        options.append(("where", asked["where"]))
    if group != []:  # all runs are one
        options.append(("group", "index" if group is None else ",".join(group)))
    options.append(("band", "none" if group is None else asked.get("band") or "ci"))
    if asked.get("ranks"):
        options.append(("ranks", asked["ranks"]))
    if asked.get("smooth"):
        options.append(("smooth", asked["smooth"]))
    if x != TIME_STEP:
        options.append(("x", x))
    if span:
        options.append(("bound", asked_range(span, (0.0, 0.0))[1]))
    lost = {
        f"the runs of {', '.join(roots[1:])}": roots[1:],
        f"x is not a column: {x}": x in {ELAPSED, ROW},
        "the lower end of the zoom": span,
        "logarithmic axes": asked.get("log") or asked.get("logY"),
    }
    words = [f"--{name}={value}" for name, value in options]  # a name or value may begin with a dash
    said = ", ".join(text for text, is_lost in lost.items() if is_lost)
    line = shlex.join(["rla", "plot", *words, "--", str(asked.get("metric"))])
    return line + (f"  # without: {said}" if said else "")


def as_csv(site: Site, asked: dict[str, Any]) -> StreamingResponse:
    """All points of a panel: `table,index,metric,x,value`, each as it was recorded, by x.

    Raises:
        ArgumentError: they are more than `MAX_CSV_ROWS`.
    """
    metric, x = str(asked.get("metric")), str(asked.get("x") or TIME_STEP)
    entries, ranks = site.chosen(asked.get("runs"))[:MAX_RUNS], asked_ranks(asked)
    total = sum(len(curve.xs) + curve.odd.shape[1] for curve in read(site, entries, x, metric, ranks))
    if total > MAX_CSV_ROWS:
        raise ArgumentError(
            f"{total} points, more than {MAX_CSV_ROWS}; `rla export FILE.csv` writes as many as there are"
        )

    def parts() -> Iterator[bytes]:
        yield _csv_lines([["table", "index", "metric", x, "value"]])
        for curve in read(site, entries, x, metric, ranks):
            record = curve.entry.record
            xs, ys = np.append(curve.xs, curve.odd[0]), np.append(curve.ys, curve.odd[1])
            order = np.argsort(xs, kind="stable")
            points = zip(xs[order].tolist(), ys[order].tolist(), strict=True)
            yield _csv_lines([record.table, record.index, metric, *map(repr, point)] for point in points)

    return StreamingResponse(parts(), media_type="text/csv")


def _csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode("utf-8", "replace")
