"""The runs of a page: their list, one of them, changes to it, and hyper-parameters against a metric.

The list goes out by column, one list a name, in the order of the run numbers beside it. Numbers that JSON
cannot carry go as the texts `nan`, `inf`, `-inf`. One run's `overview` is asked for again and again while it
lives, so that is cheap; `environment` and the sizes of its items are asked for once.

**Importance.** Of each run one value counts, the last one of the metric. The importance of a hyper-parameter
is between 0 and 1, and the larger of two measures: of numbers the size of Spearman's rank correlation; where
there are at least two runs a value, the correlation ratio of the ranks without what chance brings (epsilon,
the root of the share of their variance that lies between the values), which also sees an effect that goes up
and down again, or has no order. It is what one hyper-parameter shows by itself: where two were changed
together, or one matters in a part of the other's range alone, look at the picture.

The panels are answered as curves are (`curves.encode`): in `parallel` each run is a line over the
hyper-parameters, each scaled to 0…1, the metric last; in `scatter` each run is one point.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.filesystem.plain_files import MAX_SMALL_BYTES
from rla_client.contract.layout import CODE, FOLDER_KINDS, LOG, OUTPUT_NAMES
from rla_client.contract.run_file import RUN_FILE, run_file
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.live_runs import refuse_live
from rla_client.database.changes.master_trash import lacking
from rla_client.database.changes.trash import move_to_trash, restore_trash
from rla_client.database.clock import clock
from rla_client.database.compare.code_diff import code_differences, has_archive
from rla_client.database.compare.grouping import group_text
from rla_client.database.compare.run_differences import differing_keys, run_differences
from rla_client.database.filter.filter_language import Where
from rla_client.database.filter.name_completion import full_names, spell
from rla_client.database.records.environment import ENVIRONMENT_FILE
from rla_client.database.records.likely_metric import numeric
from rla_client.database.records.notes import change_note
from rla_client.database.records.record import Record
from rla_client.database.records.row_view import ALIASES, FIELDS, RowView
from rla_client.database.run_history import resumed_with, traceback_end
from rla_client.database.tree.chains import chain_of
from rla_client.database.tree.items import run_items
from rla_client.database.tree.sizes import item_bytes
from rla_client.database.views import write_view
from rla_client.web.curves import answer, asked_names, extremes, is_texts
from rla_client.web.files import asked_run, item_file, item_folder, list_files, readable
from rla_client.web.site import Entry, Site, path_of, sent

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from starlette.responses import Response

    Array = NDArray[np.float64]

MAX_COLUMNS = 200  # asked for at once
MAX_TEXT = 200  # characters of one that is offered
MAX_VALUES = 30  # of one name, offered by the completion
MAX_RUNS = 1000  # of one picture; more are lines on top of each other
MAX_NAMES = 40  # hyper-parameters, the most important ones
MAX_AXES = 10  # beside each other
LEAST_RUNS = 3
MAX_TICKS = 12
MAX_TICK_TEXT = 24  # characters of a value beside an axis
LOG_SPAN = 50.0  # of positive numbers: the largest by the least from which on an axis is logarithmic
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
    "updated", "rows", "lost", "lost_others", "damaged_bytes", "config", "launch", "versions",
    "replicate", "run_key",
)  # fmt: skip
_EXTREME = re.compile(r"(?P<which>max|min)\((?P<metric>.+)\)")


def rows(site: Site, since: int) -> dict[str, Any]:
    """What the list shows of the runs that changed after a version."""
    version = site.look(wait=True)
    now = clock()
    entries = site.entries(since)
    there = [entry for entry in entries if not entry.gone]
    records = [entry.record for entry in there]
    return {
        "boot": site.boot,
        "version": version,
        "now": now,
        "databases": [str(database.data_root) for database in site.databases],
        "problems": [f"{site.databases[place].data_root}: {text}" for place, text in site.problems.items()],
        "gone": [entry.number for entry in entries if entry.gone],
        "number": [entry.number for entry in there],
        "place": [entry.place for entry in there],
        "table": [record.table for record in records],
        "index": [record.index for record in records],
        "state": [entry.state for entry in there],
        "time": [record.opened for record in records],
        "step": [sent(record.time_step) for record in records],
        "took": [sent(record.duration_s) for record in records],
        "host": [record.host for record in records],
        "tags": [record.tags for record in records],
        "note": [record.note for record in records],
        "problem": [record.problems[0] if record.problems else None for record in records],
        "tracked": [dict(record.tracked) for record in records],
        "metric": [record.likely for record in records],
        "value": [sent(record.likely_value) for record in records],
    }


def column_values(site: Site, names: object, numbers: object, group: object = None) -> dict[str, list[Any]]:
    """Values of some columns for some runs, in their order; under `texts` those by which runs are grouped.

    Args:
        site: whose runs.
        names: fields, hyper-parameters, metrics (their last value), `max(METRIC)`, `min(METRIC)`.
        numbers: of the runs; None: all, by number.
        group: those of the names that runs are grouped by.
    """
    if not is_texts(names) or len(names) > MAX_COLUMNS:
        raise ArgumentError(f"a list of at most {MAX_COLUMNS} names is needed")
    entries = site.entries() if numbers is None else site.chosen(numbers)
    now = clock()
    plain = [name for name in names if not _EXTREME.fullmatch(name)]
    full = full_names(set(plain), [entry.record for entry in entries], lenient=True)
    views = [RowView(entry.record, now) for entry in entries]
    found = {name: [sent(view.get(full[name])) for view in views] for name in plain}
    for name in names:
        if match := _EXTREME.fullmatch(name):
            which = match["which"] == "max"
            ends = extremes(site, entries, match["metric"])
            found[name] = [None if pair is None else pair[which] for pair in ends]
    grouped = {name for name in plain if is_texts(group) and name in group}
    texts = {name: [group_text(view.get(full[name])) for view in views] for name in grouped}
    return {
        "number": [entry.number for entry in entries],
        "values": [found[name] for name in names],
        "texts": [texts.get(name) for name in names],
    }


def fitting(site: Site, text: object) -> list[int]:
    """Numbers of the runs that pass a filter; ArgumentError where it is not understood."""
    if not isinstance(text, str):
        raise ArgumentError("a filter is a text")
    test = Where(text)
    entries = site.entries()
    records = [entry.record for entry in entries]
    spell(test, records)
    now = clock()
    return [entry.number for entry in entries if test(RowView(entry.record, now))]


def differing(site: Site, numbers: object) -> list[str]:
    """Hyper-parameters that are not the same in some runs."""
    return differing_keys([entry.record for entry in site.chosen(numbers)])[0]


def names(site: Site) -> dict[str, Any]:
    """What can be a column or stand in a filter: fields, hyper-parameters, metrics; some of their values."""
    records = [entry.record for entry in site.entries()]
    hyper: dict[str, Counter[str]] = {}
    for record in _different(records, lambda record: record.hyper_json):
        for name, value in record.hyper.flat().items():
            counter = hyper.setdefault(name, Counter())
            if len(counter) < MAX_VALUES * 4 and isinstance(value, str | int | float | bool):
                counter[repr(value)[:MAX_TEXT]] += 1
    metrics = Counter(
        name
        for record in _different(records, lambda record: record.metrics_json)
        for name in numeric(record.metrics)
    )
    now = clock()
    values = {name: sorted(counter)[:MAX_VALUES] for name, counter in hyper.items()}
    for name in ("state", "table", "host"):
        values[name] = sorted({repr(RowView(record, now)[name]) for record in records})[:MAX_VALUES]
    values["tags"] = sorted({repr(tag) for record in records for tag in record.tags})[:MAX_VALUES]
    return {"fields": [*FIELDS, *ALIASES], "hyper": list(hyper), "metrics": list(metrics), "values": values}


def _different(records: Iterable[Record], text: Callable[[Record], Hashable]) -> list[Record]:
    """One record for each text; ten thousand runs of a sweep have few."""
    return list({text(record): record for record in records}.values())


def metric_names(entries: Sequence[Entry]) -> dict[str, int]:
    """Columns with numbers, in the order of the newest run's file, and how many runs have each."""
    counts: Counter[str] = Counter()
    for entry in reversed(entries):
        counts.update(numeric(entry.record.metrics))
    return dict(counts)


# -- one run -----------------------------------------------------------------------------------------


def overview(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """State, parameters, last values, relatives, warnings of a run."""
    entry = asked_run(site, asked)
    record = entry.record
    run = _small_json(site, entry, RUN_FILE)
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
        "parameters": [[name, _short(value)] for name, value in flat[:MAX_PARAMETERS]],
        "parameter_count": len(flat),
        "tracked": list(record.tracked),
        "resumes": resumes,
        "traceback": readable(traceback.encode("utf-8", "replace")),
        "warnings": _warnings(site, entry),
        "metrics": [[name, sent(value)] for name, value in list(record.metrics.items())[:MAX_PARAMETERS]],
        "about": {name: sent(run[name]) for name in _ABOUT if run.get(name) not in (None, "")},
        "lost": lost_lines(run),
        **_relatives(site, entry),
    }


def _short(value: object) -> object:
    found = sent(value)
    if isinstance(found, str):
        return found[:MAX_VALUE]
    if isinstance(found, list | dict):
        return json.dumps(found, ensure_ascii=False)[:MAX_VALUE]
    return found


def _small_json(site: Site, entry: Entry, name: str) -> dict[str, Any]:
    """A JSON object of a run's log folder; empty where it is none, or cannot be read."""
    try:
        with item_file(site, entry, LOG, name) as file:
            found = parse_json(file.read(MAX_SMALL_BYTES))
    except (OSError, ValueError, DatabaseError):
        return {}
    return _mapping(found)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
    sections = run_differences(*((one.database.data_root, one.record) for one in runs))
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


def note(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Change tags and note of a run; gives them as they are then."""
    entry = asked_run(site, asked)
    root, text = site.database(entry).data_root, asked.get("note")
    if text is not None and (not isinstance(text, str) or len(text) > MAX_NOTE):
        raise ArgumentError(f"a note is a text of at most {MAX_NOTE} characters")
    add, remove = asked.get("add", []), asked.get("remove", [])
    if not (is_texts(add) and is_texts(remove)):
        raise ArgumentError("tags to add and to remove are lists of texts")
    with _changing(root):
        content = change_note(root, entry.record, add=add, remove=remove, note=text)
    site.look_now()
    return {"tags": content["tags"], "note": content["note"]}


def trash(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Move a run that is not live to the trash when it is `sure`; else say what would go."""
    entry = asked_run(site, asked)
    root, record = site.database(entry).data_root, entry.record
    items = run_items(root, record.table, record.index)
    refuse_live(root, items, clock())
    if asked.get("sure") is not True:
        size = sum(item_bytes(item)[0] for item in items)
        return {"items": [item.kind for item in items], "bytes": size, "lacking": sent(lacking(root, items))}
    with _changing(root):
        refuse_live(root, items, clock())
        name = move_to_trash(root, items, clock())
    site.look_now()
    return {"entry": name, "place": entry.place}


def restore(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Bring back what `trash` moved there."""
    place = asked.get("place")
    if not isinstance(place, int) or not 0 <= place < len(site.databases):
        raise ArgumentError("there is no such database here")
    root = site.databases[place].data_root
    with _changing(root):
        count = restore_trash(root, str(asked.get("entry")))
    site.look_now()
    return {"count": count}


def view(site: Site, asked: dict[str, Any]) -> dict[str, str]:
    """Store a view under a `name` in the first database, or remove it where `query` is null; gives all."""
    root = site.databases[0].data_root
    with _changing(root):
        return write_view(root, asked.get("name"), asked.get("query"))


def _changing(root: Path) -> AbstractContextManager[None]:
    """Hold a database for a change; one that another command holds is not waited for."""

    def refuse() -> None:
        raise DatabaseError("another command is changing this database; try again when it has ended")

    return changing(root, clock(), refuse)


# -- hyper-parameters against a metric ---------------------------------------------------------------


def importance(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters that differ between runs, the most important first.

    Args:
        site: whose runs.
        asked: `runs` (numbers), `metric`.

    Returns:
        `metric`, `runs` that have it, `names`: {name, rho (None: no numbers), importance, runs}; where there
        are none, `problem` says why.
    """
    entries, ys, metric = _metric(site, asked)
    found = []
    for name in differing_keys([entry.record for entry in entries])[0]:
        values = _values(entries, name)
        there = [at for at, value in enumerate(values) if value is not None]
        known = [values[at] for at in there]
        if len(there) < LEAST_RUNS or len({str(value) for value in known}) < 2:  # noqa: PLR2004
            continue
        rho, weight = weigh(known, ys[there])
        found.append({"name": name, "rho": rho, "importance": weight, "runs": len(there)})
    found.sort(key=lambda one: -float(str(one["importance"])))
    problem = "These runs have no metric yet." if not metric else ""
    if metric and len(entries) < LEAST_RUNS:
        problem = f"{len(entries)} of these runs have {metric}: at least {LEAST_RUNS} are needed."
    elif metric and not found:
        problem = (
            "These runs differ in no hyper-parameter. Start some with other values, or select other runs."
        )
    return {"metric": metric, "runs": len(entries), "names": found[:MAX_NAMES], "problem": problem}


def weigh(values: Sequence[Any], ys: Array) -> tuple[float | None, float]:
    """Spearman's rank correlation of values with a metric (None: no numbers), and the importance."""
    target, numbers = ranks(ys), _numbers(values)
    rho = None
    if numbers is not None:
        rho = float(np.corrcoef(ranks(numbers), target)[0, 1]) if np.ptp(target) else 0.0
        rho = 0.0 if math.isnan(rho) else min(max(rho, -1.0), 1.0)
    _, kinds, counts = np.unique([str(value) for value in values], return_inverse=True, return_counts=True)
    groups, total = len(counts), len(target)
    ratio = 0.0
    if np.ptp(target) and total >= 2 * groups:  # else each value has its own mean, whatever it does
        within = float(np.sum((target - (np.bincount(kinds, target) / counts)[kinds]) ** 2)) / (
            total - groups
        )
        ratio = math.sqrt(max(1 - within / float(np.var(target, ddof=1)), 0.0))
    return rho, max(abs(rho or 0.0), ratio)


def ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[places], dtype=np.float64)


def parallel(site: Site, asked: dict[str, Any]) -> Response:
    """Each run as a line over `parameters` and the metric; see the module's text."""
    entries, ys, metric = _metric(site, asked)
    names, total = asked_names(asked.get("parameters"), "parameters")[:MAX_AXES], len(entries)
    entries, ys = entries[:MAX_RUNS], ys[:MAX_RUNS]
    axes = [_Axis(_values(entries, name)) for name in names] + [_Axis(ys.tolist())]
    columns = np.array([axis.scaled() for axis in axes]).reshape(len(axes), len(entries))
    options = {
        "xTicks": [[at, name] for at, name in enumerate([*names, metric])],
        "rulers": [axis.ruler() for axis in axes],
    }
    head = _head(site, entries, metric, total) | {"options": options}
    return answer(head, np.arange(len(axes), dtype=np.float64), list(columns.T))


def scatter(site: Site, asked: dict[str, Any]) -> Response:
    """Each run as a point, `parameter` to the right and the metric upwards; see the module's text."""
    entries, ys, metric = _metric(site, asked)
    name, total = str(asked.get("parameter")), len(entries)
    entries, ys = entries[:MAX_RUNS], ys[:MAX_RUNS]
    axis = _Axis(_values(entries, name))
    there = np.flatnonzero(~np.isnan(axis.at))
    xs, places = np.unique(axis.at[there], return_inverse=True)
    series = np.full((len(there), len(xs)), np.nan)
    series[np.arange(len(there)), places] = ys[there]
    options: dict[str, Any] = {"points": True, "logX": axis.log}
    if axis.texts:
        options["xTicks"] = [[at, text] for at, text in enumerate(axis.texts)]
    shown = [entries[at] for at in there]
    return answer(_head(site, shown, metric, total) | {"x": name, "options": options}, xs, list(series))


def _head(site: Site, entries: Sequence[Entry], metric: str, total: int) -> dict[str, Any]:
    return {
        "boot": site.boot,
        "kind": "runs",
        "metric": metric,
        "x": "",
        "curves": [{"number": entry.number} for entry in entries],
        "said": f"the first {MAX_RUNS} of {total} runs" if total > MAX_RUNS else "",
    }


class _Axis:
    """Values along an axis: numbers where they are, else their texts, which stand at 0, 1, …, in order."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = [value for value in values if value is not None]
        numbers = _numbers(known)
        self.texts: list[str] = []
        if numbers is None:
            self.texts = sorted({str(value) for value in known})
            places = {text: float(place) for place, text in enumerate(self.texts)}
            values = [None if value is None else places[str(value)] for value in values]
            numbers = np.arange(len(self.texts), dtype=np.float64)
        # the place of each; NaN where there is none
        self.at = np.array([math.nan if value is None else float(value) for value in values])
        self.low, self.high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 1.0)
        self.log = not self.texts and self.low > 0 and self.high > self.low * LOG_SPAN

    def scaled(self) -> Array:
        """Places from 0 to 1."""
        size = np.log if self.log else np.positive
        low, high = float(size(self.low)), float(size(self.high))
        return np.asarray((size(self.at) - low) / (high - low) if high > low else self.at * 0 + 0.5)

    def ruler(self) -> list[list[Any]]:
        """What stands beside the axis: [[place, text], …]."""
        if not self.texts:
            return [[0, f"{self.low:.4g}"], [1, f"{self.high:.4g}"]] if self.high > self.low else []
        step = -(-len(self.texts) // MAX_TICKS)
        last = max(len(self.texts) - 1, 1)
        return [[at / last, text[:MAX_TICK_TEXT]] for at, text in enumerate(self.texts) if at % step == 0]


def _metric(site: Site, asked: dict[str, Any]) -> tuple[list[Entry], Array, str]:
    """Runs whose last value of a metric is a finite number, these values, and the metric's name."""
    metric = asked.get("metric")
    if not isinstance(metric, str):
        raise ArgumentError("metric must be a name")
    found = []
    for entry in site.chosen(asked.get("runs")):
        value = entry.record.metrics.get(metric)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            found.append((entry, float(value)))
    return [entry for entry, _ in found], np.array([value for _, value in found]), metric


def _values(entries: Sequence[Entry], name: str) -> list[Any]:
    """A hyper-parameter of some runs: numbers, texts, None where it is not there or no number at all."""
    now = clock()
    full = full_names({name}, [entry.record for entry in entries], lenient=True)[name]
    return [_plain(RowView(entry.record, now).get(full)) for entry in entries]


def _plain(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return float(value) if abs(value) < 1e300 else None  # noqa: PLR2004 - also NaN and infinite
    return json.dumps(sent(value), ensure_ascii=False)


def _numbers(values: Sequence[Any]) -> Array | None:
    """They as numbers, also where texts spell them; None where one is none."""
    try:
        found = np.array([float(value) for value in values], dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found).all() else None
