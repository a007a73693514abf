"""What is new while a page is open: rows of runs, the list's version, this machine's agent and the fleet.

There is one stream of server-sent events a page. The page says which runs and metrics it shows and how many
rows of each it has (*cursors*). Each `TICK_S` the tables of those that may grow are stat'ed, and of one that
did, the rows behind the cursor go out; so a stream costs what is new, not what is there. Events:

    rows     {"number", "from", "x": […], "y": {metric: […]}}: new rows; null where nothing was recorded
    anew     {"number"}: rows that it has were taken back, have another x, or are of a chain; it asks again
    version  {"version"}: the list of runs changed; it asks for those since the version that it has
    alive    {}: nothing else for `ALIVE_S`, so that a dead connection shows

How this machine's agent stands, and all machines of the fleet, is told as `rla-agent status` does. The agent
package is asked by a process of its own, one at a time, and only while somebody looks. A machine that is the
master has the fleet's status files itself, in `.rla-fleet/` of a data root; elsewhere they come from the
master, over the network.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync
from starlette.responses import StreamingResponse

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.layout import TIME_STEP, TIMESTAMP
from rla_client.database.csv_table import recorded_nan
from rla_client.database.records import described, fleet_files
from rla_client.web.curves import x_values
from rla_client.web.site import Entry, Site, live, sent, table_path, table_stat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

TICK_S = 0.4
ALIVE_S = 15.0
MAX_WATCHED = 200  # runs; a panel of more is asked for anew when their list changes
MAX_ROWS = 5000  # in one event; further behind, a new curve is cheaper
FRESH_S = 2.0  # an answer is given again for so long
FLEET_FRESH_S = 60.0  # the master's, unless somebody asks for it now
FLEET_AGAIN_S = 5.0
STATUS_TIMEOUT_S = 15.0
FLEET_TIMEOUT_S = 60.0
MAX_ERROR = 2000  # characters of what a command said


def stream(site: Site, asked: dict[str, Any]) -> StreamingResponse:
    """Events for one page, until it goes away.

    Args:
        site: whose runs.
        asked: `version` of its list; `x`; `cursors`: metric → run number → rows that it has; `once`: only
            what is new by now, for a page that must not hold one of its browser's few connections.

    Raises:
        ArgumentError: something of that is not as it should be.
    """
    watcher = Watcher(site, asked)

    async def events() -> AsyncIterator[bytes]:
        said = time.monotonic()
        yield _event("alive", {})
        while True:
            found = await run_sync(watcher.look)
            now = time.monotonic()
            if found:
                yield b"".join(_event(event, data) for event, data in found)
                said = now
            elif now - said > ALIVE_S:
                yield _event("alive", {})
                said = now
            if asked.get("once"):
                return
            await anyio.sleep(TICK_S)

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Watcher:
    """What one page has, and what is new to it; see the module's text."""

    def __init__(self, site: Site, asked: dict[str, Any]) -> None:
        self._site = site
        version = asked.get("version", 0)
        self._version = version if isinstance(version, int) else 0
        self._x = str(asked.get("x") or TIME_STEP)
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
            if entry.record.parent and before not in {None, stat}:
                yield "anew", {"number": entry.number}
            elif before != stat and not entry.record.parent:
                yield from self._rows_of(entry)

    def _rows_of(self, entry: Entry) -> Iterator[tuple[str, dict[str, Any]]]:
        number = entry.number
        metrics = [metric for metric, known in self._cursors.items() if number in known]
        table = self._table(entry, metrics)
        news: dict[int, dict[str, Any]] = {}  # by cursor: panels are as far as each other, as a rule
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
        """Whether rows that the page has at their numbers have a time-step now: the first that is not 0."""
        steps = table.get(TIME_STEP)
        if self._x != TIME_STEP or steps is None or before < 2:  # noqa: PLR2004 - row 0 has time-step 0
            return False
        return bool(steps.any() and not steps[:before].any())

    def _table(self, entry: Entry, metrics: list[str]) -> dict[str, Array]:
        names = [*dict.fromkeys([TIME_STEP, TIMESTAMP, self._x, *metrics])]
        with suppress(DatabaseError, OSError):
            cache = self._site.caches[entry.place]
            return cache.columns(table_path(self._site, entry), names, time.time_ns())
        return {}


def _plain(values: Array) -> list[float | str | None]:
    recorded = recorded_nan(values)
    return [
        value if math.isfinite(value) else str(value) if is_nan or not math.isnan(value) else None
        for value, is_nan in zip(values.tolist(), recorded.tolist(), strict=True)
    ]


def _checked(cursors: object) -> dict[str, dict[int, int]]:
    """Metric → run number → rows.

    Raises:
        ArgumentError: it is something else.
    """
    try:
        if not isinstance(cursors, dict):
            raise TypeError  # noqa: TRY301 - told below
        return {
            str(metric): {int(number): int(rows) for number, rows in known.items()}
            for metric, known in cursors.items()
        }
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise ArgumentError("cursors must be metric → run → rows") from error


# -- this machine and the fleet ----------------------------------------------------------------------


class Machine:
    """What the agent here and the masters said last. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._agent = _Asked(["status", "--json"], STATUS_TIMEOUT_S)
        self._fleet = _Asked(["status", "--fleet", "--json"], FLEET_TIMEOUT_S)

    def status(self, site: Site) -> dict[str, Any]:
        """`status`, as of `rla-agent status --json`, or an `error` that says what to do."""
        return {**self._agent.answer(FRESH_S), "databases": [str(one.data_root) for one in site.databases]}

    def fleet(self, site: Site, asked: dict[str, Any]) -> dict[str, Any]:
        """Machines known on this one, where it is their master; and by a master, if it is to be asked.

        Args:
            site: whose databases may be a master's.
            asked: `network`: ask the masters too; `now`: though they were asked a moment ago.
        """
        roots = [database.data_root for database in site.databases]
        machines = [_shown(one, str(root)) for root in roots for one in fleet_files(root)]
        found: dict[str, Any] = {"machines": machines}
        if asked.get("network") is True:
            answer = self._fleet.answer(FLEET_AGAIN_S if asked.get("now") is True else FLEET_FRESH_S)
            masters = answer.get("status")
            age_s = time.monotonic() - self._fleet.moment
            for target, listed in masters.items() if isinstance(masters, dict) else ():
                machines += [
                    _shown(described(one), str(target), age_s) for one in listed if isinstance(one, dict)
                ]
            found |= {"error": answer.get("error"), "age_s": age_s}
        return found


class _Asked:
    """A command of the agent package and its last answer."""

    def __init__(self, words: list[str], timeout_s: float) -> None:
        self._words = words
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._last: dict[str, Any] = {}
        self.moment = -1e9  # of the last answer, on the steady clock

    def answer(self, fresh_s: float) -> dict[str, Any]:
        """The last answer, or a new one where that is older; while another thread asks, the last one."""
        if not self._lock.acquire(blocking=not self._last):
            return self._last
        try:
            if time.monotonic() - self.moment > fresh_s:
                self._last = _ask(self._words, self._timeout_s)
                self.moment = time.monotonic()
            return self._last
        finally:
            self._lock.release()


def _ask(words: list[str], timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "rla_agent", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"rla-agent {' '.join(words)} did not answer within {timeout_s:.0f} s"}
    except OSError as error:
        return {"error": f"rla-agent cannot be started: {error.strerror or error}"}
    with suppress(ValueError):
        found = json.loads(done.stdout)
        if isinstance(found, dict):
            return {"status": sent(found)}
    said = done.stderr.decode("utf-8", "replace").strip() or f"it ended with code {done.returncode}"
    if "No module named" in said:
        said = "the agent's package is not installed beside this one: pip install rla-agent"
    return {"error": said[-MAX_ERROR:]}


def _shown(machine: dict[str, Any], master: str, older_s: float = 0.0) -> dict[str, Any]:
    """A machine as the page shows it."""
    shown = {**machine, "master": master, "age_s": machine["age_s"] + older_s}
    return shown | {name: sent(machine[name]) for name in ("backlog", "runs")}
