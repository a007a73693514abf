"""The points of a panel as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from starlette.responses import StreamingResponse

from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import TIME_STEP
from rla_client.web.curve_points import MAX_RUNS, read_curves
from rla_client.web.request_arguments import asked_ranks
from rla_client.web.run_registry import Site

MAX_CSV_ROWS = 1_000_000


def as_csv(site: Site, asked: dict[str, Any]) -> StreamingResponse:
    """All recorded points of a panel, sorted by x: `table,index,metric,x,value`.

    Raises:
        ArgumentError: there are more than `MAX_CSV_ROWS` points.
    """
    metric, x = str(asked.get("metric")), str(asked.get("x") or TIME_STEP)
    entries, ranks = site.chosen(asked.get("runs"))[:MAX_RUNS], asked_ranks(asked)
    total = sum(len(curve.xs) + curve.odd.shape[1] for curve in read_curves(site, entries, x, metric, ranks))
    if total > MAX_CSV_ROWS:
        raise ArgumentError(
            f"{total} points, more than {MAX_CSV_ROWS}; `rla export FILE.csv` writes as many as there are"
        )

    def parts() -> Iterator[bytes]:
        yield _csv_lines([["table", "index", "metric", x, "value"]])
        for curve in read_curves(site, entries, x, metric, ranks):
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
