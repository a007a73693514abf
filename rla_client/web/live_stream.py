"""Server-sent events of an open page.

The page sends the runs and metrics that it shows and the number of rows that it has of each (*cursors*). Each
`TICK_S` the server stats the tables that may grow and sends the rows behind the cursors. So the cost of a
stream depends on the new rows, not on the size of the tables. Events:

    rows     {"number", "from", "x": […], "y": {metric: […]}}: new rows; null where nothing was recorded
    anew     {"number"}: rows of the page were withdrawn, have another x, or belong to a chain or to several
             ranks: the page asks for the curve again
    version  {"version"}: the list of runs changed: the page asks for the runs since its version
    alive    {}: no other event for `ALIVE_S`, so that a dead connection is noticed
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from anyio.to_thread import run_sync
from starlette.responses import StreamingResponse

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.database.curves.progress_csv import recorded_nan
from rla_client.database.curves.rank_tables import merges_ranks
from rla_client.database.curves.stream_tables import run_columns, split_role
from rla_client.web.curve_columns import table_path, table_stat, x_values
from rla_client.web.request_arguments import asked_ranks
from rla_client.web.run_registry import PageRun, Site, live

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
TICK_S = 0.4
ALIVE_S = 15.0
MAX_WATCHED = 200  # runs; the page reloads a panel of more runs when the list changes
MAX_ROWS = 5000  # in one event; for more rows a new curve is cheaper


def stream(site: Site, asked: dict[str, Any]) -> StreamingResponse:
    """Events for one page, until it goes away.

    Args:
        site: the page's databases.
        asked: `version` of the page's list; `x`; `ranks`; `cursors`: metric → run number → rows of the page;
            `once`: send what is new and end, for a page that must not hold one of its browser's connections.

    Raises:
        ArgumentError: an argument is invalid.
    """
    watcher = Watcher(site, asked)

    async def events() -> AsyncIterator[bytes]:
        sent_at = time.monotonic()
        yield _event("alive", {})
        while True:
            found = await run_sync(watcher.look)
            now = time.monotonic()
            if found:
                yield b"".join(_event(event, data) for event, data in found)
                sent_at = now
            elif now - sent_at > ALIVE_S:
                yield _event("alive", {})
                sent_at = now
            if asked.get("once"):
                return
            await anyio.sleep(TICK_S)

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Watcher:
    """The state of one page, from which its events follow."""

    def __init__(self, site: Site, asked: dict[str, Any]) -> None:
        self._site = site
        version = asked.get("version", 0)
        self._version = version if isinstance(version, int) else 0
        self._x = str(asked.get("x") or TIME_STEP)
        self._merged = merges_ranks(asked_ranks(asked))  # a merged row has no number in a table
        self._cursors = _checked(asked.get("cursors", {}))
        self._watched = list(dict.fromkeys(number for known in self._cursors.values() for number in known))
        self._stats: dict[int, tuple[int, int]] = {}

    def look(self) -> list[tuple[str, dict[str, Any]]]:
        """Events since the last look."""
        found = list(self._new_rows())
        version = self._site.look()
        if version != self._version:
            self._version = version
            found.append(("version", {"version": version}))
        return found

    def _new_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for entry in live(self._site.chosen(self._watched))[:MAX_WATCHED]:
            stat = table_stat(self._site, entry)
            if stat is None:
                continue
            before = self._stats.get(entry.number)
            self._stats[entry.number] = stat
            whole = bool(entry.record.parent) or self._merged
            if whole and before not in {None, stat}:
                yield "anew", {"number": entry.number}
            elif before != stat and not whole:
                yield from self._rows_of(entry)

    def _rows_of(self, entry: PageRun) -> Iterator[tuple[str, dict[str, Any]]]:
        number = entry.number
        metrics = [metric for metric, known in self._cursors.items() if number in known]
        by_role: dict[str, list[str]] = {}  # each writer's rows are counted apart
        for metric in metrics:
            by_role.setdefault(split_role(metric)[1], []).append(metric)
        for some in by_role.values():
            yield from self._rows_of_writer(entry, some)

    def _rows_of_writer(self, entry: PageRun, metrics: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        number = entry.number
        table = self._table(entry, metrics)
        news: dict[int, dict[str, Any]] = {}  # by cursor, which most panels share
        for metric in metrics:
            ys = table.get(metric)
            xs = None if ys is None else x_values(table, self._x, len(ys))
            if ys is None or xs is None:
                continue
            before = self._cursors[metric][number]
            self._cursors[metric][number] = len(ys)
            if len(ys) < before or len(ys) - before > MAX_ROWS or self._renumbered(table, before):
                yield "anew", {"number": number}
                return
            if len(ys) > before:
                same = news.setdefault(
                    before, {"number": number, "from": before, "x": _plain(xs[before:]), "y": {}}
                )
                same["y"][metric] = _plain(ys[before:])
        for data in news.values():
            yield "rows", data

    def _renumbered(self, table: Mapping[str, Array], before: int) -> bool:
        """Whether the page shows rows at their row numbers that have time-steps by now."""
        steps = table.get(TIME_STEP)
        if self._x != TIME_STEP or steps is None or before < 2:  # noqa: PLR2004 - row 0 has time-step 0
            return False
        return bool(steps.any() and not steps[:before].any())

    def _table(self, entry: PageRun, metrics: list[str]) -> dict[str, Array]:
        names = [*dict.fromkeys([TIME_STEP, TIMESTAMP, self._x, *metrics])]
        with suppress(DatabaseError, OSError):
            cache = self._site.caches[entry.place]
            now_ns = time.time_ns()
            return run_columns(
                table_path(self._site, entry), names, lambda path, some: cache.columns(path, some, now_ns)
            )
        return {}


def _plain(values: Array) -> list[float | str | None]:
    recorded = recorded_nan(values)
    return [
        value if math.isfinite(value) else str(value) if is_nan or not math.isnan(value) else None
        for value, is_nan in zip(values.tolist(), recorded.tolist(), strict=True)
    ]


def _checked(cursors: object) -> dict[str, dict[int, int]]:
    """The cursors: metric → run number → rows.

    Raises:
        ArgumentError: they have another form.
    """
    try:
        if not isinstance(cursors, dict):
            raise TypeError  # noqa: TRY301 - reported below
        return {
            str(metric): {int(number): int(rows) for number, rows in known.items()}
            for metric, known in cursors.items()
        }
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError("cursors must be metric → run → rows") from error
