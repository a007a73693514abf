"""`rla show`, `metrics`, `diff`, `compare`, `tail`: a few runs, looked at closely.

A curve is drawn in block characters, from points that are read without pandas or numpy.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.options import (
    LOOK,
    MOMENT,
    MOST_SHOWN,
    Archived,
    AsCsv,
    AsJson,
    DataRoot,
    Metrics,
    OtherRun,
    RunArgument,
    Selection,
    TableOption,
    add_command,
    open_database,
    print_rows,
    say,
    say_aside,
    takes_runs,
)
from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.filesystem.plain_files import open_plain, written_bytes
from rla_client.contract.layout import CHECKPOINT, CODE, LOG
from rla_client.contract.run_file import run_file
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.text.duration_text import duration_text
from rla_client.contract.text.spelling import full_name
from rla_client.database.clock import clock
from rla_client.database.records.environment import TOLD_HERE
from rla_client.database.records.record import UNKNOWN
from rla_client.database.text.machine_text import csv_text, json_text
from rla_client.database.text.numbers import bytes_text, plain
from rla_client.database.text.safe_text import clean, lines_text
from rla_client.database.text.text_tables import cut, pairs_text, table_text, width
from rla_client.database.text_logs import last_lines, log_path
from rla_client.database.tree.run_names import shown_name
from rla_client.database.tree.sizes import item_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from rla_client.database.curves.chart_points import Points
    from rla_client.database.runs import Run

MAX_COMPARED = 100  # runs that references fit; --where may leave more
FOLLOW_S = 0.5
CHART_ROWS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LINE = "─"
_STATE_TEXTS = {
    "waiting": "waits for an agent; rla-agent start --detach",
    "silent": "silent: its process is gone, no agent runs; rla-agent start --detach",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, show, LOOK, "rla show", "rla show seed=3 -m loss")
    add_command(app, metrics, LOOK, "rla metrics", "rla metrics --table cartpole")
    add_command(app, diff, LOOK, "rla diff @last 'lr=0.1&seed=3'", "rla diff 09-30-01 09-30-02")
    add_command(app, compare, LOOK, "rla compare --where 'seed == 1'", "rla compare -r lr=0.1 -m return")
    add_command(app, tail, LOOK, "rla tail --follow", "rla tail seed=3 --file progress -n 5")


# -- one run -------------------------------------------------------------------------------------


def show(
    run: RunArgument = "@last",
    metric: Metrics = None,
    table: TableOption = None,
    archived: Archived = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Show everything about one run, with a small chart of --metric (default: the return, reward, …)."""
    found = open_database(data_root, archived=archived).find(run, table)
    metric = _full_metrics(found, metric or [])
    if as_json:
        say(json_text(_facts(found)))
        return
    _print_run(found, metric)


def _full_metrics(run: Run, metrics: list[str]) -> list[str]:
    """Metrics as the run spells them; looked up before the page, which would hide the error."""
    names = _metric_names(run) if metrics else []
    lacking = f"{run.record.date} has no " + ("metric {!r}" if names else "rows yet, so no metric {!r}")
    return [full_name(name, names, lacking.format(name)) for name in metrics]


def _metric_names(run: Run) -> list[str]:
    """Columns of the run's table, of a chain those of all its items."""
    from rla_client.database.curves.chart_points import chart_names

    names = list(run.record.metrics)
    if run.record.parent:
        names += chart_names(run.database.data_root, run.table, run.index)
    return list(dict.fromkeys(names))


def _facts(run: Run) -> dict[str, Any]:
    from rla_client.database.run_history import resumed_with, traceback_end

    record = run.record
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
        "hyper_param": record.hyper,
        "resumed_with": resumed_with(run.folder(LOG)),
        "traceback": traceback_end(run.folder(LOG), run.state),
        "metrics": record.metrics,
        "items": {item.kind: {"paths": item.paths, "bytes": item_bytes(item)[0]} for item in run.items},
        "checkpoints": [path.name for path in run.checkpoints],
        "checkpoints_on_master": _pruned_checkpoints(run),
        "worker_tables": _worker_tables(run),
        "figures": [path.name for path in run.figures],
        **{name: record.told.get(name) for name in TOLD_HERE},
        "run_file": _about(run),
        "problems": list(record.problems),
    }


def _pruned_checkpoints(run: Run) -> list[str]:
    from rla_client.contract.checkpoint.prune_notes import pruned_files

    return [note.name for note in pruned_files(run.folder(CHECKPOINT))]


def _worker_tables(run: Run) -> list[str]:
    """`progress.<label>.csv` of a run, without what was set aside."""
    names = (path.name for path in Path(run.folder(LOG)).glob("progress.*.csv"))
    return sorted(name for name in names if not name.startswith("progress.old-"))


def _print_run(run: Run, metrics: list[str]) -> None:
    from rla_client.database.records.likely_metric import CLOCKS
    from rla_client.database.run_history import changes_text, resumed_with, traceback_end

    record = run.record
    say(cut(clean(shown_name(run.table, run.index)), max(width(), 60)))
    say(pairs_text(_standing(run, clock()), whole=True))
    for title, pairs in (
        ("hyper-parameters", record.hyper.flat()),
        ("resumed with other hyper-parameters", changes_text(resumed_with(run.folder(LOG)))),
        ("last values", {key: plain(value) for key, value in record.metrics.items() if key not in CLOCKS}),
    ):
        if pairs:
            say(f"{title}\n{pairs_text(pairs)}")
    items = {}
    for item in run.items:
        size, count = item_bytes(item)
        if count:
            items[item.kind] = f"{bytes_text(size)} in {count} file(s)"
    say(f"items\n{pairs_text(items)}")
    for title, names in (
        ("checkpoints", [path.name for path in run.checkpoints[-5:]]),
        ("checkpoints on the master, fetched when loaded", _pruned_checkpoints(run)),
        ("tables of worker processes, whose rows are not in progress.csv", _worker_tables(run)),
    ):
        if names:
            say(f"{title}\n  {cut(clean(', '.join(names)), width() - 2)}")
    _print_charts(run, metrics)
    if traceback := traceback_end(run.folder(LOG), run.state):
        say(lines_text(traceback))
    for problem in record.problems:
        say_aside(f"problem: {problem}")


def _about(run: Run) -> dict[str, Any]:
    return run_file(run.database.data_root, run.table, run.index)


def _standing(run: Run, now: float) -> dict[str, object]:
    record, about = run.record, _about(run)
    facts: dict[str, object] = {"state": _state_text(run, about, now)}
    facts["began"] = time.strftime(MOMENT, time.localtime(record.opened))
    facts["took"] = duration_text(record.duration_s)
    facts["time-step"] = plain(record.time_step)
    facts["host"] = record.host
    if lines := lost_lines(about):
        facts["lost"] = "\n".join(lines).removeprefix("lost: ")
    parent = about.get("parent")
    if isinstance(parent, dict):
        facts["parent"] = f"{parent.get('run')} at {parent.get('time_step')}"
    facts |= {name: record.told[name] for name in TOLD_HERE if name in record.told}
    if record.tags:
        facts["tags"] = " ".join(record.tags)
    if record.note:
        facts["note"] = record.note
    return facts


def _state_text(run: Run, about: dict[str, Any], now: float) -> str:
    state = _STATE_TEXTS.get(run.state, run.state)
    if state == UNKNOWN and run.record.updated is not None:
        state = f"unknown, last seen {duration_text(now - run.record.updated)} ago"
    elif state == UNKNOWN and run.record.state is None:
        state = "unknown (imported, or by the original RLA)"
    detail = [str(about["reason"])] if about.get("reason") else []
    for key in ("exit_code", "signal"):
        text = f"{key.replace('_', ' ')} {about[key]}" if about.get(key) is not None else ""
        if text and text not in detail:
            detail.append(text)
    return state + (f" ({', '.join(detail)})" if detail else "")


def _print_charts(run: Run, metrics: list[str]) -> None:
    from rla_client.database.curves.chart_points import chart_points
    from rla_client.database.records.likely_metric import likely_metric

    place = (run.database.data_root, run.table, run.index)
    try:
        likely = run.record.likely or likely_metric(_metric_names(run))
        chosen = metrics or ([likely] if likely else [])
        if not chosen:
            return
        points, sampled = chart_points(*place, chosen)
    except (DatabaseError, OSError) as error:
        say_aside(str(error))
        return
    for name in chosen:
        say(chart_text(name, points.get(name, []), sampled=sampled))


# -- a curve for a terminal ----------------------------------------------------------------------


def chart_text(title: str, points: Points, room: int | None = None, *, sampled: bool = False) -> str:
    """A curve, `CHART_ROWS` high, averaged over what falls into one column of the terminal.

    What is NaN or infinite is not drawn, but counted in the title; a metric of such values alone
    is one line. Equal values, and one row, are a straight line with the value beside it.

    Args:
        title: the metric.
        points: (x, y).
        room: columns; None takes the terminal's.
        sampled: the points are a part of all.
    """
    room = width() if room is None else room
    good = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    lost = len(points) - len(good)
    values = f"the {len(points)} values sampled" if sampled else f"{len(points)} values"
    if not good:
        return cut(f"{clean(title)}: " + (f"all {values} are nan or inf" if lost else "no numbers yet"), room)
    note = f"  ({lost} of {values} not drawn: nan or inf)" if lost else ""
    xs, ys = zip(*good, strict=True)
    across, up = (min(xs), max(xs)), (min(ys), max(ys))
    flat = up[0] == up[1]
    labels = [f"{up[1]:.4g}", f"{up[0]:.4g}"]
    margin = max(map(len, labels))
    columns = max(room - margin - 2, 10)
    begin, end = f"{across[0]:.6g}", f"{across[1]:.6g}"
    lines = [cut(clean(title), max(room - len(note), 10)) + note]
    if flat:
        lines.append(f"{labels[0]} │{_LINE * (1 if begin == end else columns)}")
    levels = [] if flat else _levels(good, across, up, columns)
    for row in range(CHART_ROWS - 1, -1, -1) if levels else ():
        label = labels[0] if row == CHART_ROWS - 1 else labels[1] if row == 0 else ""
        marks = "".join(_block(level, row) for level in levels)
        lines.append(f"{label:>{margin}} │{marks}".rstrip())
    one_x = flat and begin == end
    lines.append(" " * (margin + 2) + begin + ("" if one_x else end.rjust(columns - len(begin))))
    return "\n".join(lines)


def _levels(
    points: Points, across: tuple[float, float], up: tuple[float, float], columns: int
) -> list[float | None]:
    """Height of each column of the chart, 0 to 1; None before the first point."""
    sums = [0.0] * columns
    counts = [0] * columns
    for x, y in points:
        column = int(_part(x, *across, 0.0) * (columns - 1))
        sums[column] += _part(y, *up, 0.5)
        counts[column] += 1
    levels: list[float | None] = []
    for total, count in zip(sums, counts, strict=True):
        before = levels[-1] if levels else None
        levels.append(total / count if count else before)  # fewer points than columns: no gaps
    return levels


def _part(value: float, low: float, high: float, flat: float) -> float:
    """Where a value lies between two, 0 to 1; halved first, for their distance may be no double."""
    reach = high / 2 - low / 2
    return min((value / 2 - low / 2) / reach, 1.0) if reach > 0 else flat


def _block(level: float | None, row: int) -> str:
    if level is None:
        return " "
    eighths = max(round(level * CHART_ROWS * 8), 1) - row * 8
    return _BLOCKS[min(max(eighths, 0), 8)]


# -- several runs --------------------------------------------------------------------------------


@takes_runs()
def metrics(
    *, chosen: Selection, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """List the metrics of runs (default: the newest): number of values, last value, range."""
    from rla_client.database.compare.metric_summary import summaries

    database = open_database(data_root)
    records = chosen.some(database) if chosen.given else [database.find("@last").record]
    found = summaries(database, records)
    machine = as_json or as_csv
    who = shown_name(records[0].table, records[0].index) if len(records) == 1 else f"{len(records)} runs"
    if not machine:
        say_aside(f"{who}:" if found else f"{who}: no metric yet")
    several = machine or len(records) > 1
    names = ["metric", *(["runs"] if several else []), "rows", "last", "min", "max"]
    rows = [
        [name, *([one.runs] if several else []), one.rows, one.last, one.low, one.high]
        for name, one in found.items()
    ]
    if rows or machine:
        print_rows(names, rows, as_json=as_json, as_csv=as_csv)


def diff(
    a: RunArgument,
    b: OtherRun,
    code: Annotated[bool, typer.Option(help="Compare the code snapshots too.")] = True,
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show how two runs differ: hyper-parameters, environment, lines of code."""
    from rla_client.database.compare.code_diff import code_differences
    from rla_client.database.compare.run_differences import run_differences

    database = open_database(data_root)
    first, second = database.find(a, table), database.find(b, table)
    runs = (first, second)
    sections = run_differences(*((database.data_root, run.record) for run in runs))
    if as_csv:
        cells = [[name, key, *values] for name, rows in sections.items() for key, values in rows.items()]
        say(csv_text(["section", "name", first.index, second.index], cells))
        return
    lines, without = code_differences(first.folder(CODE), second.folder(CODE)) if code else ("", [])
    lacking = [run for run in runs if run.folder(CODE) in without]
    if as_json:
        content = {**{name: dict(rows) for name, rows in sections.items()}, "code": lines}
        say(json_text({**content, "code_not_stored": [run.record.date for run in lacking]}))
        return
    for name, rows in sections.items():
        if rows:
            listing = [[key, *values] for key, values in rows.items()]
            say(f"{name}\n{table_text(['', first.record.date, second.record.date], listing)}")
        else:
            say(f"{name}: equal")
    if code:
        _print_code(lines, lacking)


def _print_code(lines: str, lacking: list[Run]) -> None:
    from rla_client.database.compare.code_diff import has_archive

    if not lacking:
        say(f"code\n{lines_text(lines)}" if lines else "code: equal")
        return
    dates = [run.record.date for run in lacking]
    say(f"code: not stored for {' and '.join(dates)}")
    for run in lacking:
        if has_archive(run.folder(CODE)):
            say(f"  {run.record.date} has a launcher's archive, which `rla restore-code` unpacks")


@takes_runs()
def compare(
    *,
    chosen: Selection,
    metric: Metrics = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Tabulate the hyper-parameters in which runs differ, with the last values of --metric."""
    from rla_client.database.compare.run_differences import differing_keys
    from rla_client.database.filter.name_completion import full_metrics

    database = open_database(data_root)
    records = chosen.records(database)
    if (chosen.named or chosen.fitting) and len(records) > MAX_COMPARED:
        raise ArgumentError(
            f"{len(records)} runs match, the limit is {MAX_COMPARED}\nhint: --where, --tag, --since"
        )
    metric = full_metrics(metric or [], records)
    keys, flats = differing_keys(records)
    names = ["run", *keys, *metric]
    rows = [
        [record.date, *(flat.get(key) for key in keys), *(record.metrics.get(name) for name in metric)]
        for record, flat in zip(records, flats, strict=True)
    ]
    print_rows(names, rows, as_json=as_json, as_csv=as_csv)
    if not keys and not as_json and not as_csv:
        say_aside(f"({len(records)} run(s) with the same hyper-parameters)")


# -- the end of a file ---------------------------------------------------------------------------


def tail(
    run: RunArgument = "@last",
    what: Annotated[str, typer.Option("--file", help="log, progress, warn, backup or console.")] = "log",
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, max=MOST_SHOWN, help="How many lines.")] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until the run ends.")
    ] = False,
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print the end of a run's text log or table."""
    if as_json and follow:
        raise ArgumentError("--json prints the lines that are there, so it does not --follow")
    database = open_database(data_root)
    found = database.find(run, table)
    path = log_path(found, what)
    shown, offset = last_lines(path, lines)
    if as_json:
        texts = [_clean_line(line) for line in shown]
        say(json_text({"run": found.index, "table": found.table, "file": path.name, "lines": texts}))
        return
    for line in shown:
        say(_clean_line(line))
    if follow:
        _follow(path, offset, lambda: database.find(found.index, found.table).state in {"running", "stalled"})


def _clean_line(line: bytes) -> str:
    return lines_text(line.decode("utf-8", "replace").rstrip("\r\n"))


def _follow(path: Path, offset: int, live: Callable[[], bool]) -> None:
    while True:
        going = live()
        with open_plain(path) as file:
            size = written_bytes(file)
            offset = offset if size >= offset else 0  # cut by a resume: from the start
            file.seek(offset)
            block = file.read(size - offset)
        whole = block.rfind(b"\n") + 1
        for line in block[:whole].splitlines():
            say(_clean_line(line))
        sys.stdout.flush()
        offset += whole
        if not going:
            return
        time.sleep(FOLLOW_S)
