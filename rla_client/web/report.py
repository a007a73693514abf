"""Self-contained page of runs in one file.

The file has at most `MAX_BYTES`. It contains the last picture of each name, the newest runs first, as far as
there is room. If the rest is too large, curves get fewer points, then the last metrics are left out, then all
pictures are left out and long values are cut, then the oldest runs are left out. The file says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from rla_client.contract.errors import ArgumentError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.database.filter.name_completion import full_metrics
from rla_client.database.records.likely_metric import CLOCKS
from rla_client.database.views import read_views
from rla_client.web import run_list
from rla_client.web.curve_columns import table_stat
from rla_client.web.report_data import BRIEF_CHARS, curve_data, report_data, shorten
from rla_client.web.report_page import report_page
from rla_client.web.run_registry import PageRun, Site, live, path_of

MAX_BYTES = 2_000_000
CURVE_BYTES = 1_300_000  # of all panels, before compression
CUT = f"texts above {BRIEF_CHARS} characters are cut and pictures left out, as they do not fit"
RUNS = 50
MAX_PANELS = 100
WIDTHS = (16, 500)  # points of a curve are twice as many


@dataclass(frozen=True, slots=True)
class Made:
    """A report.

    Attributes:
        page: content of the file.
        runs: number of runs in it.
        left_out: older runs of the view that did not fit.
        metrics: number of metrics with curves.
        metrics_left_out: metrics without curves.
        pictures: number of pictures.
        cut: long texts are cut, and all pictures are left out.
    """

    page: bytes
    runs: int
    left_out: int
    metrics: int
    metrics_left_out: int
    pictures: int
    cut: bool = False

    @property
    def text(self) -> str:
        """The content in words, for the user."""
        parts = [f"{self.runs} run(s)", f"curves of {self.metrics} metric(s)"]
        parts += [f"{self.pictures} picture(s)"] if self.pictures else []
        lacking = [f"the {self.left_out} oldest runs"] if self.left_out else []
        lacking += [f"curves of {self.metrics_left_out} metrics"] if self.metrics_left_out else []
        text = ", ".join(parts) + (f"; without {' and '.join(lacking)}, which do not fit" if lacking else "")
        return f"{text}; {CUT}" if self.cut else text


def view_of(site: Site, name: str | None, asked: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The settings of a stored view, overridden by those in `asked`.

    Raises:
        ArgumentError: there is no such view.
    """
    views = read_views(site.databases[0].data_root)
    if name is not None and name not in views:
        known = f"; there are {', '.join(views)}" if views else "; `rla web` stores them (Views…)"
        raise ArgumentError(f"there is no view {name!r}{known}")
    stored = parse_qs(views[name]) if name is not None else {}
    return {**stored, **{key: list(values) for key, values in asked.items() if values}}


def write_report(  # noqa: PLR0913 - all but three by name
    path: Path,
    site: Site,
    view: Mapping[str, Sequence[str]],
    *,
    limit: int = RUNS,
    metrics: Sequence[str] | None = None,
    follow_s: float | None = None,
    written: Callable[[Made], None],
) -> None:
    """Write the file, then call `written` with the report.

    Args:
        path: of the file.
        site: the page's databases.
        view: settings of the page, name → values.
        limit: at most so many runs, the newest.
        metrics: to draw, the last parts of a name suffice; None: all.
        follow_s: write again whenever something is new, with so many seconds between looks; None: once.
        written: called after each write.
    """
    before: object = None
    while True:
        now = (site.look(wait=True), [table_stat(site, entry) for entry in live(site.entries())])
        if now != before:
            made = _made(site, view, limit, metrics, follow_s)
            write_atomic(path, made.page)
            written(made)
        before = now
        if follow_s is None:
            return
        time.sleep(follow_s)


def make_report(
    site: Site,
    view: Mapping[str, Sequence[str]],
    limit: int = RUNS,
    *,
    metrics: Sequence[str] | None = None,
    refresh_s: float | None = None,
) -> bytes:
    """The content of the file.

    Args:
        site: the page's databases.
        view: settings of the page as in its address: name → values.
        limit: at most so many runs, the newest.
        metrics: to draw; None: all, at most `MAX_PANELS`.
        refresh_s: a browser reloads the file after so many seconds; None: never.

    Raises:
        ArgumentError: no run is in the view, or a setting is invalid.
    """
    return _made(site, view, limit, metrics, refresh_s).page


def _made(
    site: Site,
    view: Mapping[str, Sequence[str]],
    limit: int,
    metrics: Sequence[str] | None,
    refresh_s: float | None,
) -> Made:
    site.look(wait=True)
    entries = _entries(site, view)[-limit:]
    if not entries:
        raise ArgumentError("no run fits: a report needs one at least")
    metrics = full_metrics(metrics, [entry.record for entry in entries]) if metrics else metrics
    brief, there = False, len(entries)
    while True:
        left_out = there - len(entries)
        found, size = _fitting(site, entries, view, metrics, refresh_s, brief=brief, left_out=left_out)
        if found is not None:
            return found
        if not brief:
            brief = True
        elif len(entries) > 1:  # an upper estimate, so that no run is left out needlessly
            entries = entries[-max(1, min(len(entries) - 1, len(entries) * MAX_BYTES // size)) :]
        else:
            most = f"{MAX_BYTES / 1e6:.0f} MB"
            raise ArgumentError(f"what one run recorded does not fit into a report of {most}")


def _fitting(  # noqa: PLR0913 - the arguments of a report
    site: Site,
    entries: Sequence[PageRun],
    view: Mapping[str, Sequence[str]],
    metrics: Sequence[str] | None,
    refresh_s: float | None,
    *,
    brief: bool,
    left_out: int,
) -> tuple[Made | None, int]:
    """The report of some runs with as many points and metrics as fit; None if not even one metric fits.

    The second value is the size in bytes of the smallest file that was tried.
    """
    data = report_data(site, entries)
    if left_out:
        data["runs"]["problems"] = [*data["runs"]["problems"], f"{left_out} older runs are not in this file"]
    if brief:
        shorten(data)
        data["runs"]["problems"] = [*data["runs"]["problems"], CUT]
    drawn = [name for name in metrics or data["metrics"] if name not in CLOCKS][:MAX_PANELS]
    wished = len(set(metrics or data["metrics"]) - CLOCKS)
    data["metrics"] = {name: data["metrics"].get(name, 0) for name in drawn}
    data["curves"] = {}
    wanted = dict(view) | {"where": [], "show": [str(len(entries))]}
    base = len(report_page(data, wanted, refresh_s))
    if base > MAX_BYTES:
        return None, base
    width, room = WIDTHS[1], min(CURVE_BYTES, MAX_BYTES - base)
    while True:
        data["curves"] = {name: curve_data(site, entries, view, name, width) for name in drawn}
        size = sum(map(len, data["curves"].values()))
        found = report_page(data, wanted, refresh_s) if size <= CURVE_BYTES or width == WIDTHS[0] else b""
        if found and len(found) <= MAX_BYTES:
            facts = (left_out, len(drawn), wished - len(drawn), len(data["pictures"]), brief)
            return Made(found, len(entries), *facts), len(found)
        fewer = room / max(size, 1)  # share of the curves that fits
        if width == WIDTHS[0]:
            if len(drawn) <= 1:
                return None, len(found)
            drawn = drawn[: max(1, int(len(drawn) * min(fewer, 0.75)))]
            data["metrics"] = {name: data["metrics"][name] for name in drawn}
        width = max(WIDTHS[0], int(width * min(0.9 * fewer, 0.7)))


def _entries(site: Site, view: Mapping[str, Sequence[str]]) -> list[PageRun]:
    """The runs of a view, oldest first."""
    where, chosen = next(iter(view.get("where", ())), ""), set(view.get("run", ()))
    found = site.chosen(run_list.fitting(site, where)) if where else site.entries()
    found = [entry for entry in found if not chosen or path_of(entry) in chosen]
    return sorted(found, key=lambda entry: entry.record.opened)
