"""`rla show`: everything about one run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from rla_client.cli.chart import chart_text
from rla_client.cli.open_database import open_database
from rla_client.cli.options import (
    MOMENT,
    Archived,
    AsJson,
    AskedRanks,
    DataRoot,
    Metrics,
    RunArgument,
    TableOption,
)
from rla_client.cli.output import say, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import CHECKPOINT, LOG, OTHER_RESULTS
from rla_client.contract.run_file import run_file
from rla_client.contract.run_index import NO_IP, RunIndex
from rla_client.contract.run_part import newest_part
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.text.duration_text import duration_text
from rla_client.contract.text.spelling import full_name
from rla_client.database.captured_text import captured_text
from rla_client.database.clock import clock
from rla_client.database.curves.rank_tables import (
    Ranks,
    names_of_ranks,
    of_each_rank,
    parse_ranks,
    rank_notes,
)
from rla_client.database.curves.stream_tables import of_all_roles
from rla_client.database.records.record import UNKNOWN
from rla_client.database.records.told_fields import shown_in
from rla_client.database.run_parts import parts_of
from rla_client.database.text.machine_text import json_text
from rla_client.database.text.numbers import bytes_text, plain
from rla_client.database.text.safe_text import clean, lines_text
from rla_client.database.text.tag_text import tags_text
from rla_client.database.text.text_tables import cut, pairs_text, width
from rla_client.database.tree.run_names import shown_name
from rla_client.database.tree.sizes import item_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rla_client.contract.sharded_checkpoint.status import ShardedStatus
    from rla_client.database.curves.chart_points import Points
    from rla_client.database.database import Database
    from rla_client.database.noted_checkpoints import NotedCheckpoint
    from rla_client.database.run import Run


MAX_RESULTS = 100_000  # files of results to count
MAX_NAMES = 20  # of results to list
_STATE_TEXTS = {
    "waiting": "waits for an agent; rla-agent start --detach",
    "silent": "silent: its process is gone, no agent runs; rla-agent start --detach",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, show, LOOK, "rla show", "rla show seed=3 -m loss")


def show(
    run: RunArgument = "@last",
    metric: Metrics = None,
    ranks: AskedRanks = None,
    table: TableOption = None,
    archived: Archived = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Show everything about one run, with a small chart of --metric (default: the return, reward, …)."""
    database = open_database(data_root, archived=archived)
    found = database.find(run, table)
    curves = _curves(database, found, parse_ranks(ranks))
    metric = _full_metrics(found, metric or [], curves)
    if as_json:
        say(json_text(_facts(found, curves)))
        return
    _print_run(found, metric, curves)


class _Curves(NamedTuple):
    """Metrics of a run.

    Attributes:
        ranks: the chosen ranks.
        last: metric → last value.
        notes: notes about the ranks.
        points: metric → (x, y) pairs for one rank or a mean; None: to be read when needed.
    """

    ranks: Ranks | None
    last: Mapping[str, Any]
    notes: list[str]
    points: dict[str, Points] | None


def _curves(database: Database, run: Run, ranks: Ranks | None) -> _Curves:
    if ranks is None or ranks == "all":
        return _Curves(ranks, run.record.metrics, [], None)
    from rla_client.database.curves.chart_points import chart_names
    from rla_client.database.curves.curve_frame import frame_shares
    from rla_client.database.records.likely_metric import CLOCKS

    known = names_of_ranks(chart_names(run.data_root, run.table, run.index), ranks)
    frame = database.curves(run, [name for name in known if name not in CLOCKS], ranks=ranks)
    points: dict[str, Points] = {
        str(name): list(zip(part["x"], part["value"], strict=True))
        for name, part in frame.groupby("metric", observed=True, sort=False)
    }
    last = {name: one[-1][1] for name, one in points.items() if one}
    return _Curves(ranks, last, rank_notes(ranks, frame_shares(frame)), points)


def _full_metrics(run: Run, metrics: list[str], curves: _Curves) -> list[str]:
    """Full names of metrics; checked before anything is printed, so that an error is not missed."""
    names = _metric_names(run, curves) if metrics else []
    lacking = f"{run.record.date} has no " + ("metric {!r}" if names else "rows yet, so no metric {!r}")
    every = [one for name in metrics for one in of_all_roles(name, names)]
    full = [full_name(name, names, lacking.format(name)) for name in every]
    if curves.ranks == "all":
        full = [one for name in full for one in of_each_rank(name, names)]
    return list(dict.fromkeys(full))


def _metric_names(run: Run, curves: _Curves) -> list[str]:
    """Columns of the run's table, or of all items of its chain."""
    from rla_client.database.curves.chart_points import chart_names

    if curves.points is not None:
        return list(curves.points)
    names = list(run.record.metrics)
    if run.record.parent:
        names += chart_names(run.data_root, run.table, run.index)
    return list(dict.fromkeys(names))


def _facts(run: Run, curves: _Curves) -> dict[str, Any]:
    from rla_client.database.resumed_parameters import resumed_with
    from rla_client.database.traceback_end import traceback_end

    record, noted = run.record, _noted_checkpoints(run)
    return {
        "table": run.table,
        "index": run.index,
        "state": run.state,
        "opened": record.opened,
        "host": record.host,
        "time_step": record.time_step,
        "duration_s": record.duration_s,
        "tags": list(record.tags),
        "note": record.note,
        "display_name": record.display_name,
        "hyper_param": record.hyper,
        "resumed_with": resumed_with(run.folder(LOG)),
        "traceback": traceback_end(run.folder(LOG), run.state),
        "metrics": curves.last,
        **({"ranks": curves.notes} if curves.points is not None else {}),
        "items": {item.kind: {"paths": item.paths, "bytes": item_bytes(item)[0]} for item in run.items},
        "checkpoints": [path.name for path in run.checkpoints],
        "checkpoints_on_master": _pruned_checkpoints(run),
        "checkpoints_elsewhere": [one.path for one in noted if not one.by_call],
        "checkpoints_noted": [
            {
                "path": one.path,
                "step": one.step,
                "bytes": one.size,
                "complete": one.complete,
                "metrics": one.metrics,
            }
            for one in noted
            if one.by_call
        ],
        "checkpoints_not_whole": _unfinished_checkpoints(run),
        "worker_tables": _worker_tables(run),
        "figures": [path.name for path in run.figures],
        **{one.name: record.told.get(one.name) for one in shown_in("show")},
        "run_file": _about(run),
        "parts": parts_of(record, clock()),
        "problems": list(record.problems),
    }


def _pruned_checkpoints(run: Run) -> list[str]:
    from rla_client.contract.item.prune_notes import pruned_files

    files = [note.name for note in pruned_files(run.folder(CHECKPOINT))]
    return files + [one.path.name for one in _sharded(run) if one.pruned]


def _noted_checkpoints(run: Run) -> list[NotedCheckpoint]:
    from rla_client.database.noted_checkpoints import noted_checkpoints

    return noted_checkpoints(run.data_root, run.table, run.index)


def _noted_text(one: NotedCheckpoint) -> str:
    facts = [f"step {plain(one.step)}"] if one.step is not None else []
    facts += [bytes_text(one.size)] if one.size is not None else []
    facts += [] if one.complete is None else ["complete" if one.complete else "not complete"]
    facts += [f"{name} {plain(value)}" for name, value in one.metrics.items()]
    return f"{', '.join(facts)}: {one.path}" if facts else one.path


def _sharded(run: Run) -> list[ShardedStatus]:
    from rla_client.contract.sharded_checkpoint.status import sharded_status

    try:
        return sharded_status(Path(run.folder(CHECKPOINT)))
    except OSError:
        return []


def _unfinished_checkpoints(run: Run) -> list[str]:
    return [str(one) for one in _sharded(run) if not one.whole]


def _last_checkpoints(run: Run) -> list[str]:
    """Names of the last five local checkpoints; for a sharded one with its shards and size."""
    sharded = {one.path.name: one for one in _sharded(run) if one.whole}
    found = []
    for path in run.checkpoints:
        one = sharded.get(path.name)
        if one is None:
            found.append(path.name)
        elif not one.pruned:
            found.append(f"{path.name} ({one.shards} shards, {bytes_text(one.size)})")
    return found[-5:]


def _results(run: Run) -> dict[str, str]:
    """Name of a result → number of files and last time-step."""
    from rla_client.database.results_by_name import grouped

    folder = run.folder(OTHER_RESULTS)
    groups = grouped([os.path.relpath(path, folder) for path in run.figures[:MAX_RESULTS]])
    found = {}
    for name, group in list(groups.items())[:MAX_NAMES]:
        last = group[-1][0]
        count = f"{len(group)} files" if len(group) > 1 else "1 file"
        found[name] = count if last is None else f"{count}, last of time-step {plain(last)}"
    if len(groups) > MAX_NAMES:
        found["…"] = f"{len(groups) - MAX_NAMES} further names"
    return found


def _worker_tables(run: Run) -> list[str]:
    """Names of `progress.<label>.csv` of a run, without replaced ones."""
    names = (path.name for path in Path(run.folder(LOG)).glob("progress.*.csv"))
    return sorted(name for name in names if not name.startswith("progress.old-"))


def _print_run(run: Run, metrics: list[str], curves: _Curves) -> None:
    from rla_client.database.records.likely_metric import CLOCKS
    from rla_client.database.resumed_parameters import changes_text, resumed_with
    from rla_client.database.traceback_end import traceback_end

    record = run.record
    say(cut(clean(shown_name(run.table, run.index)), max(width(), 60)))
    say(pairs_text(_standing(run, clock()), whole=True))
    values = {key: plain(value) for key, value in curves.last.items() if key not in CLOCKS}
    for title, pairs in (
        ("hyper-parameters", record.hyper.flat()),
        ("resumed with other hyper-parameters", changes_text(resumed_with(run.folder(LOG)))),
        ("; ".join(["last values", *map(clean, curves.notes)]), values),
    ):
        if pairs:
            say(f"{title}\n{pairs_text(pairs)}")
    items = {}
    for item in run.items:
        size, count = item_bytes(item)
        if count:
            items[item.kind] = f"{bytes_text(size)} in {count} file(s)"
    say(f"items\n{pairs_text(items)}")
    if results := _results(run):
        say(f"results\n{pairs_text(results)}")
    _print_checkpoints(run)
    _print_charts(run, metrics, curves)
    if traceback := traceback_end(run.folder(LOG), run.state):
        say(lines_text(traceback))
    for problem in record.problems:
        say_aside(f"problem: {problem}")


def _print_checkpoints(run: Run) -> None:
    """Print checkpoints here and elsewhere, and tables of further writers."""
    noted = _noted_checkpoints(run)
    for title, names in (
        ("checkpoints", _last_checkpoints(run)),
        ("checkpoints on the master, fetched when loaded", _pruned_checkpoints(run)),
        ("checkpoints of the Trainer's, elsewhere", [one.path for one in noted if not one.by_call][-5:]),
        ("sharded checkpoints that are not whole", _unfinished_checkpoints(run)),
        ("tables of further writers, whose metrics are called `<metric>@<role>`", _worker_tables(run)),
    ):
        if names:
            say(f"{title}\n  {cut(clean(', '.join(names)), width() - 2)}")
    if lines := [f"  {cut(clean(_noted_text(one)), width() - 2)}" for one in noted if one.by_call][-5:]:
        say("\n".join(["checkpoints that others wrote", *lines]))


def _about(run: Run) -> dict[str, Any]:
    return run_file(run.data_root, run.table, run.index) or newest_part(run.folder(LOG))


def _standing(run: Run, now: float) -> dict[str, object]:
    record, about = run.record, _about(run)
    facts: dict[str, object] = {"name": record.display_name} if record.display_name else {}
    facts["state"] = _state_text(run, about, now)
    facts["began"] = time.strftime(MOMENT, time.localtime(record.opened))
    facts["took"] = duration_text(record.duration_s)
    facts["time-step"] = plain(record.time_step)
    origin = _origin(run, about)
    optional = {"host": record.host, "imported": f"from {clean(origin)}" if origin else ""}
    facts |= {name: value for name, value in optional.items() if value}
    if lines := lost_lines(about):
        facts["lost"] = "\n".join(lines).removeprefix("lost: ")
    if parts := parts_of(record, now):
        facts["parts"] = "\n".join(map(clean, parts))
    parent = about.get("parent")
    if isinstance(parent, dict):
        facts["parent"] = f"{parent.get('run')} at {parent.get('time_step')}"
    for one in shown_in("show"):
        if (value := record.told.get(one.name)) is not None:
            moment = one.kind == "moment"
            facts[one.name] = time.strftime(MOMENT, time.localtime(value)) if moment else plain(value)
    if captured := captured_text(run.folder(LOG)):
        facts["captured"] = clean(captured)
    if record.tags:
        facts["tags"] = tags_text(record.tags)
    if record.note:
        facts["note"] = record.note
    return facts


def _state_text(run: Run, about: dict[str, Any], now: float) -> str:
    state = _STATE_TEXTS.get(run.state, run.state)
    if state == UNKNOWN and run.record.updated is not None:
        state = f"unknown, last seen {duration_text(now - run.record.updated)} ago"
    elif state == UNKNOWN and run.record.state is None:
        state = "unknown, as imported" if _origin(run, about) else "unknown (by the original RLA)"
    reason = str(about.get("reason") or "")
    detail = [reason] if reason else []
    for key in ("exit_code", "signal"):
        text = f"{key.replace('_', ' ')} {about[key]}" if about.get(key) is not None else ""
        named = key == "signal" and "killed by " in reason
        if text and not named and text not in reason:
            detail.append(text)
    if reason.startswith(f"{state} "):  # such as `killed by SIGKILL`
        return ", ".join(detail)
    return state + (f" ({', '.join(detail)})" if detail else "")


def _origin(run: Run, about: dict[str, Any]) -> str:
    """Tool and run, or file, that a run was imported from; empty for other runs."""
    imported = about.get("imported")
    if isinstance(imported, dict):
        return " ".join(str(imported[name]) for name in ("from", "id") if imported.get(name))
    index = None if about else RunIndex.parse(run.index)  # runs imported from text tables have no run.json
    named = index is not None and index.ip == NO_IP and index.info.startswith("&source=")
    return index.info.removeprefix("&source=") if index and named else ""


def _print_charts(run: Run, metrics: list[str], curves: _Curves) -> None:
    from rla_client.database.curves.chart_points import chart_points
    from rla_client.database.records.likely_metric import likely_metric

    place = (run.data_root, run.table, run.index)
    try:
        names = _metric_names(run, curves)
        likely = run.record.likely if run.record.likely in names else likely_metric(names)
        chosen = metrics or ([likely] if likely else [])
        if not chosen:
            return
        points, sampled = chart_points(*place, chosen) if curves.points is None else (curves.points, False)
    except (DatabaseError, OSError) as error:
        say_aside(str(error))
        return
    for name in chosen:
        say(chart_text(name, points.get(name, []), sampled=sampled))
