"""Self-contained page of runs in one file.

The file is the page itself (`bundle`), the answers that it would ask a server for (runs, columns, curves,
pictures), compressed, and a policy that lets no other script run than this one, by its hash. What a run wrote
is in the data alone.

It has at most `MAX_BYTES`. Of pictures it has the last one of each name, the newest runs first, as far as
there is room. Where the rest is too large, curves get fewer points, then the last metrics are left out; then
pictures go and long values are cut; then the oldest runs are left out, which is said.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.layout import OTHER_RESULTS, TIME_STEP
from rla_client.database.filter.name_completion import full_metrics
from rla_client.database.records.likely_metric import CLOCKS
from rla_client.database.records.record_reader import MAX_NAME_CHARS
from rla_client.database.records.row_view import FIELDS
from rla_client.database.views import read_views
from rla_client.web import STATIC, file_download, item_files, media, run_detail, run_list
from rla_client.web.bundle import bundle
from rla_client.web.curve_columns import table_stat
from rla_client.web.curves import curves
from rla_client.web.run_registry import PageRun, Site, live, path_of

MAX_BYTES = 2_000_000
CURVE_BYTES = 1_300_000  # of all panels, before they are packed
PICTURE_BYTES = 400_000  # of all pictures
MAX_PICTURE_BYTES = 150_000
BRIEF_CHARS = MAX_NAME_CHARS  # of a text, where it must be short
BRIEF_VALUES = 500  # of a run's parameters and last values, likewise
CUT = f"texts above {BRIEF_CHARS} characters are cut and pictures left out, as they do not fit"
RUNS = 50
MAX_PANELS = 100
WIDTHS = (16, 500)  # points of a curve are twice as many
_LOADED = re.compile(r'<link [^>]*>\n|<script type="module"[^>]*></script>\n')  # by the page, from its server
_OF_RUNS = frozenset({"databases", "problems", "gone", "boot", "version", "now"})  # not one value a run


@dataclass(frozen=True, slots=True)
class Made:
    """A report.

    Attributes:
        page: the file.
        runs: that it holds.
        left_out: older runs of the view that did not fit.
        metrics: with curves in it.
        metrics_left_out: that have none in it.
        pictures: in it.
        cut: long texts are cut, and there are no pictures.
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
        """What it holds, in words."""
        parts = [f"{self.runs} run(s)", f"curves of {self.metrics} metric(s)"]
        parts += [f"{self.pictures} picture(s)"] if self.pictures else []
        lacking = [f"the {self.left_out} oldest runs"] if self.left_out else []
        lacking += [f"curves of {self.metrics_left_out} metrics"] if self.metrics_left_out else []
        text = ", ".join(parts) + (f"; without {' and '.join(lacking)}, which do not fit" if lacking else "")
        return f"{text}; {CUT}" if self.cut else text


def view_of(site: Site, name: str | None, asked: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """A stored view with some settings of one's own instead of its.

    Raises:
        ArgumentError: there is no such view.
    """
    views = read_views(site.databases[0].data_root)
    if name is not None and name not in views:
        known = f"; there are {', '.join(views)}" if views else "; `rla web` stores them (Views…)"
        raise ArgumentError(f"there is no view {name!r}{known}")
    stored = parse_qs(views[name]) if name is not None else {}
    return {**stored, **{key: list(values) for key, values in asked.items() if values}}


def write_report(  # noqa: PLR0913 - what a report is made of
    path: Path,
    site: Site,
    view: Mapping[str, Sequence[str]],
    *,
    limit: int = RUNS,
    metrics: Sequence[str] | None = None,
    follow_s: float | None = None,
    written: Callable[[Made], None],
) -> None:
    """Write the file, tell what it holds. `metrics`: to draw, the last parts of a name will do; None: all.

    With `follow_s`, seconds between looks, again whenever something is new.
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
    """The file.

    Args:
        site: whose runs.
        view: settings of the page as its address has them: name → values.
        limit: how many runs, the newest ones.
        metrics: to draw; None: all, at most `MAX_PANELS`.
        refresh_s: a browser that shows it loads it again after so long.

    Raises:
        ArgumentError: no run is in the view, or a setting is not as it should be.
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
        elif len(entries) > 1:  # about as many as fit, rather too many, so that none is left out in vain
            entries = entries[-max(1, min(len(entries) - 1, len(entries) * MAX_BYTES // size)) :]
        else:
            most = f"{MAX_BYTES / 1e6:.0f} MB"
            raise ArgumentError(f"what one run recorded does not fit into a report of {most}")


def _fitting(  # noqa: PLR0913 - what a report is made of
    site: Site,
    entries: Sequence[PageRun],
    view: Mapping[str, Sequence[str]],
    metrics: Sequence[str] | None,
    refresh_s: float | None,
    *,
    brief: bool,
    left_out: int,
) -> tuple[Made | None, int]:
    """The file of some runs with as many points and metrics as fit; None where not even one metric fits.

    Beside it, the size of the smallest that was tried.
    """
    data = _data(site, entries)
    if left_out:
        data["runs"]["problems"] = [*data["runs"]["problems"], f"{left_out} older runs are not in this file"]
    if brief:
        _shorten(data)
        data["runs"]["problems"] = [*data["runs"]["problems"], CUT]
    drawn = [name for name in metrics or data["metrics"] if name not in CLOCKS][:MAX_PANELS]
    wished = len(set(metrics or data["metrics"]) - CLOCKS)
    data["metrics"] = {name: data["metrics"].get(name, 0) for name in drawn}
    data["curves"] = {}
    wanted = dict(view) | {"where": [], "show": [str(len(entries))]}
    base = len(_page(data, wanted, refresh_s))
    if base > MAX_BYTES:
        return None, base
    width, room = WIDTHS[1], min(CURVE_BYTES, MAX_BYTES - base)
    while True:
        data["curves"] = {name: _curve(site, entries, view, name, width) for name in drawn}
        size = sum(map(len, data["curves"].values()))
        found = _page(data, wanted, refresh_s) if size <= CURVE_BYTES or width == WIDTHS[0] else b""
        if found and len(found) <= MAX_BYTES:
            facts = (left_out, len(drawn), wished - len(drawn), len(data["pictures"]), brief)
            return Made(found, len(entries), *facts), len(found)
        fewer = room / max(size, 1)  # of the curves there is room for
        if width == WIDTHS[0]:
            if len(drawn) <= 1:
                return None, len(found)
            drawn = drawn[: max(1, int(len(drawn) * min(fewer, 0.75)))]
            data["metrics"] = {name: data["metrics"][name] for name in drawn}
        width = max(WIDTHS[0], int(width * min(0.9 * fewer, 0.7)))


def _shorten(data: dict[str, Any]) -> None:
    """Leave out pictures, and cut what is long: names and values of parameters, texts, environments."""
    data["pictures"] = {}
    data["media"] = {run: {**found, "groups": [], "names": 0} for run, found in data["media"].items()}
    for run in data["run"].values():
        run |= {name: run[name][:BRIEF_VALUES] for name in ("parameters", "metrics")}
    for name in ("run", "runs", "columns", "texts", "environment"):
        data[name] = _cut(data[name])


def _cut(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Plain data with at most `BRIEF_CHARS` a text; no name has more, see `records`."""
    if isinstance(value, str):
        return value if len(value) <= BRIEF_CHARS else f"{value[:BRIEF_CHARS]}…"
    if isinstance(value, list):
        return [_cut(one) for one in value]
    if isinstance(value, dict):
        return {key: _cut(one) for key, one in value.items()}
    return value


def _entries(site: Site, view: Mapping[str, Sequence[str]]) -> list[PageRun]:
    """Runs of a view, oldest first."""
    where, chosen = next(iter(view.get("where", ())), ""), set(view.get("run", ()))
    found = site.chosen(run_list.fitting(site, where)) if where else site.entries()
    found = [entry for entry in found if not chosen or path_of(entry) in chosen]
    return sorted(found, key=lambda entry: entry.record.opened)


def _data(site: Site, entries: Sequence[PageRun]) -> dict[str, Any]:
    """Answers to what the page asks, but for the curves."""
    numbers = [entry.number for entry in entries]
    told = run_list.rows(site, 0)
    places = [told["number"].index(number) for number in numbers]
    hyper = list(dict.fromkeys(name for entry in entries for name in entry.record.hyper.flat()))
    metrics = run_list.metric_names(entries)
    names = [*FIELDS, *hyper, *metrics][: run_list.MAX_COLUMNS]
    found = run_list.column_values(site, names, numbers, names)
    pictures: dict[str, str] = {}
    return {
        "boot": site.boot,
        "runs": {
            name: column if name in _OF_RUNS else [column[place] for place in places]
            for name, column in told.items()
        },
        "names": {
            "fields": list(FIELDS),
            "hyper": [name for name in hyper if name in names],
            "metrics": [name for name in metrics if name in names],
            "values": {},
        },
        "columns": dict(zip(names, found["values"], strict=True)),
        "texts": dict(zip(names, found["texts"], strict=True)),
        "metrics": metrics,
        "run": {path_of(entry): run_detail.overview(site, {"run": path_of(entry)}) for entry in entries},
        "environment": {path_of(entry): _environment(site, entry) for entry in entries},
        "media": {path_of(entry): _media(site, entry, pictures) for entry in reversed(entries)},
        "pictures": pictures,
    }


def _environment(site: Site, entry: PageRun) -> dict[str, Any]:
    """Of the environment what is short."""
    found = run_detail.environment(site, {"run": path_of(entry)})
    told = found["environment"]
    short = {name: value for name, value in told.items() if name not in {"packages", "environment"}}
    return {**found, "environment": short, "diff": {"lines": [], "count": 0, "state": found["diff"]["state"]}}


def _media(site: Site, entry: PageRun, pictures: dict[str, str]) -> dict[str, Any]:
    """Pictures of a run, the last one of each name; they are put into `pictures` by path."""
    run = path_of(entry)
    found = media.media(site, {"run": run})
    groups = []
    for group in found["groups"]:
        step, path = group["files"][-1]
        room = PICTURE_BYTES - sum(map(len, pictures.values()))
        if group["kind"] != "image":
            continue
        with suppress(OSError, DatabaseError), item_files.item_file(site, entry, OTHER_RESULTS, path) as file:
            content = file.read(min(MAX_PICTURE_BYTES, max(room, 0)) + 1)
            if len(content) <= min(MAX_PICTURE_BYTES, room):
                kind = file_download.SHOWN[os.path.splitext(path)[1].lower()]
                pictures[f"{run}/{path}"] = f"data:{kind};base64,{base64.b64encode(content).decode()}"
                groups.append({**group, "count": 1, "files": [[step, path]]})
    return {**found, "groups": groups, "names": len(groups), "tables": [], "others": [], "other_count": 0}


def _curve(
    site: Site, entries: Sequence[PageRun], view: Mapping[str, Sequence[str]], metric: str, width: int
) -> str:
    """Answer of a panel, as text."""

    def one(name: str, default: str = "") -> str:
        return next(iter(view.get(name, ())), default)

    try:
        smooth = float(one("smooth", "0"))
    except ValueError as error:
        raise ArgumentError(f"smooth must be a number, not {one('smooth')!r}") from error
    group = [name.strip() for name in one("group").split(",") if name.strip()]
    asked = {
        "runs": [entry.number for entry in entries],
        "metric": metric,
        "x": one("x", TIME_STEP),
        "width": width,
        "log": one("logx") == "1",
        "smooth": smooth,
        "group": group or None,
        "band": one("band", "ci"),
    }
    return base64.b64encode(bytes(curves(site, asked).body)).decode()


def _page(data: Mapping[str, Any], view: Mapping[str, Sequence[str]], refresh_s: float | None) -> bytes:
    """The page's own file with all that it needs inside."""
    script = bundle()
    style = "".join((STATIC / name).read_text() for name in ("vendor/uPlot.min.css", "style.css"))
    packed = gzip.compress(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"), 6, mtime=0)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    again = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s:.0f}">\n'
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n{again}<style>{style}</style>\n'
    text = _LOADED.sub("", (STATIC / "index.html").read_text())
    text = text.replace('<meta charset="utf-8">\n', f'<meta charset="utf-8">\n{head}')
    query = html.escape(f"#/runs?{urlencode(view, doseq=True)}")
    text = text.replace("<html lang", f'<html data-view="{query}" lang')
    body = f'<script type="application/json" id="data">{base64.b64encode(packed).decode()}</script>\n'
    return text.replace("</body>", f"{body}<script>{script}</script>\n</body>").encode()


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
