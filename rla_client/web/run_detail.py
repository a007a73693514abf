"""Detail view of a run.

A run's `overview` is asked for again and again while it lives, so that is cheap; `environment` and the sizes
of its items are asked for once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.plain_files import MAX_SMALL_BYTES
from rla_client.contract.layout import CODE, FOLDER_KINDS, LOG, OUTPUT_NAMES, SAMPLES
from rla_client.contract.run_file import RUN_FILE, run_file
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.clock import clock
from rla_client.database.compare.code_diff import code_differences, has_archive
from rla_client.database.compare.run_differences import run_differences
from rla_client.database.records.told_fields import ENVIRONMENT_FILE, shown_in
from rla_client.database.resumed_parameters import resumed_with
from rla_client.database.run_parts import parts_of
from rla_client.database.traceback_end import traceback_end
from rla_client.database.tree.chains import chain_of
from rla_client.web.file_text import readable
from rla_client.web.item_files import asked_run, item_file, item_folder, list_files
from rla_client.web.page_json import sent
from rla_client.web.run_registry import PageRun, Site, path_of

MAX_PARAMETERS = 20_000
MAX_VALUE = 4000  # characters of one value
MAX_RELATED = 50  # runs that this one came from, or that came from it
MAX_OTHERS = 50  # runs offered for a comparison
MAX_DIFF_LINES = 20_000
WARNING_BYTES = 16 << 10
WARNINGS = 8
_ABOUT = (
    "run_id", "user", "pid", "reason", "exit_code", "signal", "opened", "reopened", "last_row", "closed",
    "updated", "rows", "lost", "lost_others", "damaged_bytes", "config", "launch", "versions",
    "replicate", "run_key",
)  # fmt: skip


def overview(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """State, parameters, last values, relatives, warnings of a run."""
    entry = asked_run(site, asked)
    record = entry.record
    run = _small_json(site, entry, RUN_FILE)
    flat = list(record.hyper.flat().items())
    resumes, traceback = _history(site, entry)
    parts = parts_of(record, clock())
    return {
        "path": path_of(entry),
        "number": entry.number,
        "boot": site.boot,
        "version": site.version,
        "database": str(site.database(entry).data_root),
        "table": record.table,
        "index": record.index,
        "date": record.date,
        "state": entry.state,
        "live": record.is_live(clock()),
        "now": clock(),
        "opened": record.opened,
        "took": sent(record.duration_s),
        "step": sent(record.time_step),
        "host": record.host,
        "tags": list(record.tags),
        "note": record.note,
        "display_name": record.display_name,
        "problems": [*record.problems, *(f"part {line}" for line in parts[1:])],
        "parts": parts[0] if parts else None,
        "likely": record.likely,
        "samples": _may_have_samples(site.database(entry).data_root / SAMPLES / record.table / record.index),
        "parameters": [[name, _short(value)] for name, value in flat[:MAX_PARAMETERS]],
        "parameter_count": len(flat),
        "tracked": list(record.tracked),
        "resumes": resumes,
        "traceback": readable(traceback.encode("utf-8", "replace")),
        "warnings": _warnings(site, entry),
        "metrics": [[name, sent(value)] for name, value in list(record.metrics.items())[:MAX_PARAMETERS]],
        "about": {name: sent(run[name]) for name in _ABOUT if run.get(name) not in (None, "")},
        "facts": [
            [one.name, one.kind, sent(record.told[one.name])]
            for one in shown_in("page")
            if one.name in record.told
        ],
        "lost": lost_lines(run),
        **_relatives(site, entry),
    }


def _may_have_samples(folder: Path) -> bool:
    """Whether a run has samples, or a folder of them that may not be looked at, of which the tab tells."""
    try:
        return folder.is_dir()
    except PermissionError:
        return True


def _short(value: object) -> object:
    found = sent(value)
    if isinstance(found, str):
        return found[:MAX_VALUE]
    if isinstance(found, list | dict):
        return json.dumps(found, ensure_ascii=False)[:MAX_VALUE]
    return found


def _small_json(site: Site, entry: PageRun, name: str) -> dict[str, Any]:
    """A JSON object of a run's log folder; empty where it is none, or cannot be read."""
    try:
        with item_file(site, entry, LOG, name) as file:
            found = parse_json(file.read(MAX_SMALL_BYTES))
    except (OSError, ValueError, DatabaseError):
        return {}
    return _mapping(found)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _history(site: Site, entry: PageRun) -> tuple[list[Any], str]:
    try:
        with item_folder(site, entry, LOG) as folder:
            return sent(resumed_with(str(folder))), traceback_end(str(folder), entry.state)
    except (OSError, DatabaseError):
        return [], ""


def _warnings(site: Site, entry: PageRun) -> list[str]:
    """The last lines of warn.txt; alerts that the program sends are among them."""
    try:
        with item_file(site, entry, LOG, OUTPUT_NAMES["warn"]) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - WARNING_BYTES))
            lines = readable(file.read(WARNING_BYTES)).split("\n")
    except (OSError, DatabaseError):
        return []
    return [line[:500] for line in lines if line.startswith("[")][-WARNINGS:]


def _relatives(site: Site, entry: PageRun) -> dict[str, Any]:
    """Runs that this one continues or is a fork of, nearest first; and those that came from it."""
    record, root = entry.record, site.database(entry).data_root
    above: list[dict[str, Any]] = []
    table, index, seen = record.table, record.index, {(record.table, record.index)}
    while len(above) < MAX_RELATED:
        parent = run_file(root, table, index).get("parent")
        if not isinstance(parent, dict) or RunIndex.parse(str(parent.get("run"))) is None:
            break
        table, index = str(parent.get("table") or table), str(parent["run"])
        if (table, index) in seen or ".." in f"{table}/{index}".split("/"):
            break
        seen.add((table, index))
        known = {"path": f"{entry.place}/{table}/{index}", "index": index}
        above.append({**known, "step": sent(parent.get("time_step")), "chain": parent.get("chain") is True})
    text = json.dumps(record.index)[1:-1]
    below = [
        {
            "path": path_of(one),
            "index": one.record.index,
            "chain": one.record.parent == record.index,
            "state": one.state,
        }
        for one in site.entries()
        if one.place == entry.place
        and text in one.record.told_json
        and str(one.record.told.get("parent", "")).startswith(f"{record.index} at ")
    ]
    chain = [link.index for link in chain_of(root, record.table, record.index)]
    return {"parents": above, "children": below[:MAX_RELATED], "chain": len(chain)}


def environment(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """What a run was started with, the diff of what was not committed, and the sizes of its items."""
    entry = asked_run(site, asked)
    found = _small_json(site, entry, ENVIRONMENT_FILE)
    git = _mapping(found.pop("git", None))
    diff = _mapping(git.pop("diff", None))
    kinds = {}
    for kind in FOLDER_KINDS:
        listed = list_files(site, entry, kind)
        if listed.files:
            kinds[kind] = [sum(one.size for one in listed.files), len(listed.files), listed.cut]
    return {
        "environment": sent(found),
        "git": sent(git),
        "diff": {
            **sent({name: diff.get(name) for name in ("state", "left_out")}),
            **_lines(str(diff.get("text") or "")),
        },
        "kinds": kinds,
    }


def _lines(diff: str) -> dict[str, Any]:
    lines = readable(diff.encode("utf-8", "replace")).split("\n") if diff else []
    return {"lines": lines[:MAX_DIFF_LINES], "count": len(lines)}


def others(site: Site, asked: dict[str, Any]) -> list[list[str]]:
    """The newest runs whose path holds a text, but not this one: [path, state]."""
    wanted, own = str(asked.get("text", "")).lower(), str(asked.get("run", ""))
    site.look(wait=True)
    found = []
    for entry in sorted(site.entries(), key=lambda one: -one.record.opened):
        path = path_of(entry)
        if wanted in path.lower() and path != own:
            found.append([path, entry.state])
        if len(found) == MAX_OTHERS:
            break
    return found


def difference(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """What differs between two runs: parameters, environment, lines of code."""
    pair = (asked_run(site, asked), site.find(str(asked.get("other", ""))))
    runs = [site.run(one) for one in pair]
    sections = run_differences(*((one.data_root, one.record) for one in runs))
    folders = [one.folder(CODE) for one in runs]
    text, without = code_differences(*folders, bounded=True)
    return {
        "other": path_of(pair[1]),
        "sections": {
            name: [[key, *map(_short, values)] for key, values in rows.items()][:MAX_PARAMETERS]
            for name, rows in sections.items()
        },
        "without": [path_of(one) for one, folder in zip(pair, folders, strict=True) if folder in without],
        "archives": [path_of(one) for one, folder in zip(pair, folders, strict=True) if has_archive(folder)],
        **_lines(text),
    }
