"""Answers of the server that a report contains."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.layout import OTHER_RESULTS, TIME_STEP
from rla_client.database.records.record_reader import MAX_NAME_CHARS
from rla_client.database.records.row_view import FIELDS
from rla_client.web import (
    column_values,
    file_download,
    item_files,
    media,
    offered_names,
    run_environment,
    run_list,
    run_overview,
)
from rla_client.web.curves import curves
from rla_client.web.run_registry import PageRun, Site, path_of

PICTURE_BYTES = 400_000  # of all pictures
MAX_PICTURE_BYTES = 150_000
BRIEF_CHARS = MAX_NAME_CHARS  # of a text in a shortened report
BRIEF_VALUES = 500  # of a run's parameters, and of its last values, in a shortened report
_NOT_COLUMNS = frozenset({"databases", "problems", "gone", "boot", "version", "now"})


def shorten(data: dict[str, Any]) -> None:
    """Remove pictures and cut long parameters, texts and environments, in place."""
    data["pictures"] = {}
    data["media"] = {run: {**found, "groups": [], "names": 0} for run, found in data["media"].items()}
    for run in data["run"].values():
        run |= {name: run[name][:BRIEF_VALUES] for name in ("parameters", "metrics")}
    for name in ("run", "runs", "columns", "texts", "environment"):
        data[name] = _cut(data[name])


def _cut(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Plain data with texts of at most `BRIEF_CHARS`; names are shorter, see `MAX_NAME_CHARS`."""
    if isinstance(value, str):
        return value if len(value) <= BRIEF_CHARS else f"{value[:BRIEF_CHARS]}…"
    if isinstance(value, list):
        return [_cut(one) for one in value]
    if isinstance(value, dict):
        return {key: _cut(one) for key, one in value.items()}
    return value


def report_data(site: Site, entries: Sequence[PageRun]) -> dict[str, Any]:
    """The answers to the page's requests, except curves."""
    numbers = [entry.number for entry in entries]
    told = run_list.rows(site, 0)
    places = [told["number"].index(number) for number in numbers]
    hyper = list(dict.fromkeys(name for entry in entries for name in entry.record.hyper.flat()))
    metrics = offered_names.metric_names(entries)
    names = [*FIELDS, *hyper, *metrics][: column_values.MAX_COLUMNS]
    found = column_values.column_values(site, names, numbers, names)
    pictures: dict[str, str] = {}
    return {
        "boot": site.boot,
        "runs": {
            name: column if name in _NOT_COLUMNS else [column[place] for place in places]
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
        "run": {path_of(entry): run_overview.overview(site, {"run": path_of(entry)}) for entry in entries},
        "environment": {path_of(entry): _environment(site, entry) for entry in entries},
        "media": {path_of(entry): _media(site, entry, pictures) for entry in reversed(entries)},
        "pictures": pictures,
    }


def _environment(site: Site, entry: PageRun) -> dict[str, Any]:
    """The short parts of the environment."""
    found = run_environment.environment(site, {"run": path_of(entry)})
    told = found["environment"]
    short = {name: value for name, value in told.items() if name not in {"packages", "environment"}}
    return {**found, "environment": short, "diff": {"lines": [], "count": 0, "state": found["diff"]["state"]}}


def _media(site: Site, entry: PageRun, pictures: dict[str, str]) -> dict[str, Any]:
    """The media of a run with the last picture of each name, which is added to `pictures` by path."""
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


def curve_data(
    site: Site, entries: Sequence[PageRun], view: Mapping[str, Sequence[str]], metric: str, width: int
) -> str:
    """The answer of a panel, in base64.

    Raises:
        ArgumentError: a setting is invalid.
    """

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
