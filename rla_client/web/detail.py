"""One run: how it stands, where it came from, what differs from another, and changes to it.

The page asks for `overview` again and again while a run lives, so that is cheap; `environment` and the sizes
of its items are asked for once.
"""

from __future__ import annotations

import json
from typing import Any

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.files import MAX_SMALL_BYTES
from rla_client.contract.layout import CODE, FOLDER_KINDS, LOG, OUTPUT_NAMES, RunIndex
from rla_client.contract.opening import RUN_FILE, run_file
from rla_client.contract.parsing import parse_json
from rla_client.database.changes import changing, lacking, move_to_trash, refuse_live, restore_trash
from rla_client.database.compare import code_differences, has_archive, run_differences
from rla_client.database.query import resumed_with, traceback_end
from rla_client.database.records import clock
from rla_client.database.tools import change_note, read_views, write_view
from rla_client.database.tree import chain_of, item_bytes, run_items
from rla_client.web.files import asked_run, item_file, item_folder, list_files, readable
from rla_client.web.site import Entry, Site, path_of, sent

ENVIRONMENT_FILE = "environment.json"
MAX_PARAMETERS = 20_000
MAX_VALUE = 4000  # characters of one value
MAX_RELATED = 50  # runs that this one came from, or that came from it
MAX_OTHERS = 50  # runs offered for a comparison
MAX_DIFF_LINES = 20_000
MAX_NOTE = 100_000  # characters
WARNING_BYTES = 16 << 10
WARNINGS = 8
_ABOUT = (
    "run_id", "user", "pid", "reason", "exit_code", "signal", "opened", "reopened", "last_row", "closed",
    "updated", "rows", "lost", "damaged_bytes", "config", "launch", "versions", "replicate", "run_key",
)  # fmt: skip


def overview(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """State, parameters, last values, relatives, warnings of a run."""
    entry = asked_run(site, asked)
    record = entry.record
    run = small_json(site, entry, RUN_FILE)
    flat = list(record.hyper.flat().items())
    resumes, traceback = _history(site, entry)
    return {
        "path": path_of(entry),
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
        "problems": list(record.problems),
        "likely": record.likely,
        "parameters": [[name, _value(value)] for name, value in flat[:MAX_PARAMETERS]],
        "parameter_count": len(flat),
        "tracked": list(record.tracked),
        "resumes": resumes,
        "traceback": readable(traceback.encode("utf-8", "replace")),
        "warnings": _warnings(site, entry),
        "metrics": [[name, sent(value)] for name, value in list(record.metrics.items())[:MAX_PARAMETERS]],
        "about": {name: sent(run[name]) for name in _ABOUT if run.get(name) not in (None, "")},
        **_relatives(site, entry),
    }


def _value(value: object) -> object:
    found = sent(value)
    if isinstance(found, str):
        return found[:MAX_VALUE]
    if isinstance(found, list | dict):
        return json.dumps(found, ensure_ascii=False)[:MAX_VALUE]
    return found


def small_json(site: Site, entry: Entry, name: str) -> dict[str, Any]:
    """A JSON object of a run's log folder; empty where it is none, or cannot be read."""
    try:
        with item_file(site, entry, LOG, name) as file:
            found = parse_json(file.read(MAX_SMALL_BYTES))
    except (OSError, ValueError, DatabaseError):
        return {}
    return found if isinstance(found, dict) else {}


def _history(site: Site, entry: Entry) -> tuple[list[Any], str]:
    try:
        with item_folder(site, entry, LOG) as folder:
            return sent(resumed_with(str(folder))), traceback_end(str(folder), entry.state)
    except (OSError, DatabaseError):
        return [], ""


def _warnings(site: Site, entry: Entry) -> list[str]:
    """The last lines of warn.txt; alerts that the program sends are among them."""
    try:
        with item_file(site, entry, LOG, OUTPUT_NAMES["warn"]) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - WARNING_BYTES))
            lines = readable(file.read(WARNING_BYTES)).split("\n")
    except (OSError, DatabaseError):
        return []
    return [line[:500] for line in lines if line.startswith("[")][-WARNINGS:]


def _relatives(site: Site, entry: Entry) -> dict[str, Any]:
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
        path = f"{entry.place}/{table}/{index}"
        above.append(
            {
                "path": path,
                "index": index,
                "step": sent(parent.get("time_step")),
                "chain": parent.get("chain") is True,
            }
        )
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
    found = small_json(site, entry, ENVIRONMENT_FILE)
    git = found.pop("git", None)
    git = git if isinstance(git, dict) else {}
    diff = git.pop("diff", None)
    diff = diff if isinstance(diff, dict) else {}
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
    lines = readable(diff.encode("utf-8", "replace")).split("\n")
    return {"lines": lines[:MAX_DIFF_LINES], "count": len(lines)} if diff else {"lines": [], "count": 0}


def others(site: Site, asked: dict[str, Any]) -> list[list[str]]:
    """The newest runs whose path holds a text, but not this one: [path, state]."""
    wanted, own = str(asked.get("text", "")).lower(), str(asked.get("run", ""))
    site.look(wait=True)
    found = []
    for entry in sorted(site.entries(), key=lambda one: -one.record.opened):
        path = path_of(entry)
        if wanted in path.lower() and path != own:
            found.append([path, entry.state or ""])
        if len(found) == MAX_OTHERS:
            break
    return found


def difference(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """What differs between two runs: parameters, environment, lines of code."""
    pair = (asked_run(site, asked), site.find(str(asked.get("other", ""))))
    runs = [site.run(one) for one in pair]
    abouts = [run_file(one.database.data_root, one.table, one.index) for one in runs]
    sections = run_differences(runs[0].record, runs[1].record, *abouts)
    folders = [one.folder(CODE) for one in runs]
    text, without = code_differences(*folders, bounded=True)
    return {
        "other": path_of(pair[1]),
        "sections": {
            name: [[key, *map(_value, values)] for key, values in rows.items()][:MAX_PARAMETERS]
            for name, rows in sections.items()
        },
        "without": [path_of(one) for one, folder in zip(pair, folders, strict=True) if folder in without],
        "archives": [path_of(one) for one, folder in zip(pair, folders, strict=True) if has_archive(folder)],
        **_lines(text),
    }


def note(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Change tags and note of a run; gives them as they are then.

    Raises:
        ArgumentError: a tag cannot be one.
    """
    entry = asked_run(site, asked)
    root, text = site.database(entry).data_root, asked.get("note")
    if text is not None and (not isinstance(text, str) or len(text) > MAX_NOTE):
        raise ArgumentError(f"a note is a text of at most {MAX_NOTE} characters")
    add, remove = asked.get("add", []), asked.get("remove", [])
    if not all(
        isinstance(tags, list) and all(isinstance(tag, str) for tag in tags) for tags in (add, remove)
    ):
        raise ArgumentError("tags to add and to remove are lists of texts")
    with changing(root, clock(), _held):
        content = change_note(root, entry.record, add=add, remove=remove, note=text)
    site.look_now()
    return {"tags": content["tags"], "note": content["note"]}


def trash(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Move a run to the trash when it is `sure`; else say what would go, and what the master lacks of it.

    Raises:
        LiveRunError: it is being written.
    """
    entry = asked_run(site, asked)
    root, record = site.database(entry).data_root, entry.record
    items = run_items(root, record.table, record.index)
    refuse_live(root, items, clock())
    if asked.get("sure") is not True:
        size = sum(item_bytes(item)[0] for item in items)
        return {"items": [item.kind for item in items], "bytes": size, "lacking": sent(lacking(root, items))}
    with changing(root, clock(), _held):
        refuse_live(root, items, clock())
        name = move_to_trash(root, items, clock())
    site.look_now()
    return {"entry": name, "place": entry.place}


def restore(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Bring back what `trash` moved there.

    Raises:
        DatabaseError: the trash has no such entry any more, or something has the run's place.
    """
    place = asked.get("place")
    if not isinstance(place, int) or not 0 <= place < len(site.databases):
        raise ArgumentError("there is no such database here")
    root = site.databases[place].data_root
    with changing(root, clock(), _held):
        count = restore_trash(root, str(asked.get("entry")))
    site.look_now()
    return {"count": count}


def views(site: Site) -> dict[str, str]:
    """Named views by name; those of the first database, whatever others the page shows."""
    return read_views(site.databases[0].data_root)


def view(site: Site, asked: dict[str, Any]) -> dict[str, str]:
    """Store a view under a `name`, or remove it where `query` is null; gives all views.

    Raises:
        ArgumentError: the name or the query cannot be one.
    """
    root = site.databases[0].data_root
    with changing(root, clock(), _held):
        return write_view(root, asked.get("name"), asked.get("query"))


def _held() -> None:
    raise DatabaseError("another command is changing this database; try again when it has ended")
