"""`rla ls`, `plot`, `tb`, `web`, `report`, `mcp`, `top`: many runs, as a table, a plot, a page, a screen.

All but the table is drawn by other parts of the package, which extras install; they are imported when such
a command runs.
"""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from dataclasses import replace
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
    Columns,
    DataRoot,
    Metrics,
    Selection,
    Where,
    add_command,
    complete_metric,
    complete_parameters,
    complete_sort,
    complete_table,
    open_database,
    print_done,
    print_rows,
    say,
    say_aside,
    takes_runs,
    teller,
)
from rla_client.contract.errors import ArgumentError, DatabaseError, extra
from rla_client.contract.filesystem.plain_files import open_plain
from rla_client.contract.text.duration_text import duration_text
from rla_client.database.clock import clock
from rla_client.database.records.likely_metric import likely_of
from rla_client.database.records.record import MOMENTS
from rla_client.database.records.row_view import RowView
from rla_client.database.text.numbers import plain
from rla_client.database.text.safe_text import clean
from rla_client.database.tree.data_root import NoRunsYetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rla_client.database.compare.groups import Group
    from rla_client.database.records.record import Record

TERMINAL_LIMIT = 20  # rows of `ls` on a terminal; a pipe gets all
LIGHT_COLUMNS = frozenset({"time", "run", "state", "step", "time-step", "took", "host", "table"})
WAITING = frozenset({"waiting", "silent"})  # states of a run that no agent serves
PLOT_ENDINGS = (".png", ".pdf", ".svg")
MAX_INCHES = 40.0  # of a plot; 300 dots an inch make it the 100 million pixels that are drawn at most
PLOT_NAME = "plot.png"  # where nobody names a file
PLOT_MARK = {"Software": "rla plot"}  # text in a PNG file
MARK_WITHIN = 1024  # bytes of its beginning
DataRoots = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-root",
        "-d",
        envvar="RLA_DATA_ROOT",
        help="A database: the folder that holds log/ (repeatable).",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, ls, LOOK, "rla ls cartpole --where 'lr == 0.001'", "rla ls --group lr -m return")
    lines = ("rla plot return --group lr", "rla plot loss -r lr=0.1 --smooth 5 -o loss.pdf")
    add_command(app, plot, LOOK, *lines)
    add_command(app, tb, LOOK, "rla tb", "rla tb --where 'lr == 0.1' --port 0")
    add_command(app, web, LOOK, "rla web", "rla web --data-root data --port 0")
    lines = ("rla report report.html", 'rla report report.html --where "lr == 0.01" --follow')
    add_command(app, report, LOOK, *lines)
    add_command(app, mcp, LOOK, "rla mcp", "rla mcp --data-root data")
    add_command(app, top, LOOK, "rla top", "rla top --data-root data")


# -- a table ------------------------------------------------------------------------------------


@takes_runs(argument=False)
def ls(
    tables: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Only this task table.", autocompletion=complete_table),
    ] = None,
    *,
    chosen: Selection,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", "-s", help="Column to sort by; -NAME for descending.", autocompletion=complete_sort
        ),
    ] = "time",
    columns: Columns = None,
    metric: Metrics = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="One line per value of these parameters: runs, states, mean of the metric ± 95 % interval.",
            autocompletion=complete_parameters,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, max=MOST_SHOWN, help="How many, the newest ones; 0 for all."),
    ] = None,
    archived: Archived = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List runs, newest last: state, time-step, last value of a metric, tracked hyper-parameters."""
    from rla_client.database.filter.name_completion import full_metrics

    chosen = replace(chosen, table=_one_table(tables, chosen.table))
    machine = as_json or as_csv
    try:
        database = open_database(data_root, archived=archived)
    except NoRunsYetError as error:
        teller(as_json=machine)(str(error))
        if machine:
            print_rows(["run"], [], as_json=as_json, as_csv=as_csv)
        return
    if group is not None:
        _check_group(columns, sort)
        records = chosen.records(database)[-(limit or 0) :]
        _print_groups(records, _split(group) or [], metric or [], (as_json, as_csv))
        return
    if limit is None:
        limit = TERMINAL_LIMIT if sys.stdout.isatty() and not machine else 0
    filtered = bool(chosen.fitting or chosen.where)
    early = limit if limit and sort == "time" and not filtered else None
    light = not (machine or columns or metric) and sort.removeprefix("-") in LIGHT_COLUMNS
    records = (
        chosen.records(database, light=light)
        if early is None
        else database.records(chosen.table, None, chosen.since, limit=early, light=light)
    )
    now = clock()
    wanted, sort = _full_columns(records, _split(columns), sort)
    metric = full_metrics(metric or [], records)
    records = _sorted(records, sort, now)
    every = len(records)
    if early is not None and every == early:
        every = database.count(chosen.table, chosen.since)
    records = records[-limit:] if limit else records
    names, rows = _listing(records, wanted, metric, now, everything=machine)
    if not rows and not machine:
        place = f"table {chosen.table}" if chosen.table else str(database.data_root)
        say("no runs match" if filtered or chosen.since else f"no runs yet in {place}")
        return
    print_rows(names, rows, as_json=as_json, as_csv=as_csv)
    if len(records) < every:
        newest, more = f"the {len(records)} newest of {every}", f"{every - len(records)} more"
        say_aside(f"{newest if sort == 'time' else more}; all: rla ls --limit 0")
    if not machine:
        _say_trouble(records)


def _say_trouble(records: list[Record]) -> None:
    if unserved := sum(record.state in WAITING for record in records):
        say_aside(f"({unserved} run(s) wait for an agent; rla-agent start --detach)")
    if broken := sum(bool(record.problems) for record in records):
        say_aside(f"({broken} run(s) with unreadable files; `rla fsck` or `rla show RUN` says which)")


def _one_table(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None and argument != option:
        raise ArgumentError(f"one table at a time, not {argument!r} and --table {option!r}")
    return argument if argument is not None else option


def _full_columns(
    records: list[Record], columns: list[str] | None, sort: str
) -> tuple[list[str] | None, str]:
    """`columns` and `sort` as the runs spell them; a name that no run has would be an empty column."""
    from rla_client.database.filter.name_completion import full_names

    full = full_names({*(columns or ()), sort.removeprefix("-")}, records)
    signed = "-" * sort.startswith("-") + full[sort.removeprefix("-")]
    return None if columns is None else [full[name] for name in columns], signed


def _split(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _sorted(records: list[Record], sort: str, now: float) -> list[Record]:
    if sort == "time":
        return records
    name = sort.removeprefix("-")

    def key(record: Record) -> tuple[int, float, str]:
        value = RowView(record, now).get(name)
        if isinstance(value, int | float):
            return (0, 1.0, "") if math.isnan(value) else (1, float(value), "")
        return (0, 0.0, "") if value is None else (2, 0.0, str(value))

    return sorted(records, key=key, reverse=sort.startswith("-"))


def _check_group(columns: str | None, sort: str) -> None:
    if columns is not None or sort != "time":
        raise ArgumentError(
            "--group has columns and an order of its own\nhint: leave out --columns and --sort"
        )


def _print_groups(records: list[Record], by: list[str], asked: list[str], form: tuple[bool, bool]) -> None:
    """One line a group of runs; `form` is (as JSON, as CSV)."""
    from rla_client.database.compare.best_group import judge, less_is_better, told
    from rla_client.database.compare.groups import group_name, group_runs, mean_and_interval
    from rla_client.database.filter.name_completion import full_metrics, full_names

    if not records and not any(form):
        say("no runs match")
        return
    full = full_names(set(by), records)
    by = [full[name] for name in by]
    likely = likely_of(records)
    chosen = full_metrics(asked, records) or ([likely] if likely else [])
    metrics: list[str | None] = [*chosen] or [None]  # without any, only runs and states
    groups = [group_runs(records, by, name, clock()) for name in metrics]
    rows = []
    for same in zip(*groups, strict=True):
        states = ", ".join(f"{count} {state}" for state, count in sorted(same[0].states.items()))
        row = [*(same[0].values if any(form) else same[0].texts), same[0].states.total(), states]
        for group in same if chosen else ():
            mean, interval = mean_and_interval(group.numbers)
            row += [mean, interval, len(group.numbers)] if any(form) else [_mean_text(mean, interval, group)]
        rows.append(row)
    heads = [[name, f"{name}:ci95", f"{name}:runs"] if any(form) else [name] for name in chosen]
    names = [*by, "runs", "states", *(head for part in heads for head in part)]
    print_rows(names, rows, as_json=form[0], as_csv=form[1])
    if not any(form) and chosen:
        say_aside("(mean of the last values over runs ± 95 % interval; another metric: -m METRIC)")
        choice = judge(groups[0], by, minimize=less_is_better(chosen[0]))
        for line in told(choice, group_name(by, groups[0][choice.best])) if choice else ():
            say_aside(line)


def _mean_text(mean: float | None, interval: float | None, group: Group) -> str | None:
    if mean is None:
        return None
    text = clean(mean) if interval is None else f"{clean(mean)} ± {interval:.2g}"
    lacks_some = group.states.total() > len(group.numbers)
    return text + (f" ({len(group.numbers)} run(s))" if lacks_some else "")


def _listing(
    records: list[Record], asked: list[str] | None, metrics: list[str], now: float, *, everything: bool
) -> tuple[list[str], list[list[object]]]:
    """Column names and rows of `ls`."""
    if asked is not None:
        asked += metrics
        views = [RowView(record, now) for record in records]
        if everything:
            return asked, [[view.get(name) for name in asked] for view in views]
        return asked, [[_shown(view.get(name), view.field(name)) for name in asked] for view in views]
    texts = [record.tracked for record in records]
    keys = list(dict.fromkeys(key for text in texts for key in text))
    several = everything or len({record.table for record in records}) > 1
    heads, values_of = _metric_columns(records, metrics, everything=everything)
    names = ["run", *(["table"] if several else []), "state", "step", "took", *heads, *keys]
    rows = []
    for record, text in zip(records, texts, strict=True):
        took: object = record.duration_s if everything else duration_text(record.duration_s)
        head = [record.index if everything else record.date, *([record.table] if several else [])]
        known = RowView(record, now) if everything else text
        values = [known.get(key) for key in keys]
        rows.append(
            [*head, record.shown_state(now), plain(record.time_step), took, *values_of(record), *values]
        )
    if everything or any(record.tags for record in records):
        names.append("tags")
        for row, record in zip(rows, records, strict=True):
            row.append(" ".join(record.tags) or None)
    return names, rows


def _metric_columns(
    records: list[Record], metrics: list[str], *, everything: bool
) -> tuple[list[str], Callable[[Record], list[object]]]:
    """Names of the metrics' columns, and what a run has in them; where none was asked for, the likely one."""
    if metrics:
        return metrics, lambda record: [record.metrics.get(name) for name in metrics]
    if everything:
        return ["metric", "value"], lambda record: [record.likely or None, record.likely_value]
    likely = sorted({record.likely for record in records} - {""})
    if len(likely) > 1:  # else the name is the column's
        return ["metric"], lambda record: [
            f"{record.likely}={clean(record.likely_value)}" if record.likely else None
        ]
    if not likely:
        return [], lambda _: []
    return likely, lambda record: [float(record.likely_text)] if record.likely_text else [None]


def _shown(value: Any, field: str | None) -> object:  # noqa: ANN401
    """A value as people write it: dates, durations, lists of names (tags, kinds), whole numbers as ints."""
    if field == "duration":
        return duration_text(value)
    if field in MOMENTS and value is not None:
        return time.strftime(MOMENT, time.localtime(value))
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value) or None
    return plain(value)


# -- pictures ------------------------------------------------------------------------------------


@takes_runs(argument=False)
def plot(
    metrics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METRIC",
            help="Columns of progress.csv (see rla metrics); default: the return, reward, score, …",
            autocompletion=complete_metric,
        ),
    ] = None,
    *,
    chosen: Selection,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=f"PNG, PDF or SVG file; default: {PLOT_NAME}.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="One curve per value of these hyper-parameters, separated by commas.",
            autocompletion=complete_parameters,
        ),
    ] = None,
    band: Annotated[str, typer.Option(help="ci, iqm, stderr, std, range, median or none.")] = "ci",
    smooth: Annotated[float, typer.Option(min=0.0, help="Moving average over this many points.")] = 0.0,
    x: Annotated[
        str, typer.Option(help="Column of the x axis.", autocompletion=complete_metric)
    ] = "time-step",
    bound: Annotated[float | None, typer.Option(help="Largest x.")] = None,
    width: Annotated[
        float, typer.Option(min=1.0, max=MAX_INCHES, help="Width in inches; 3.3 is one column of a paper.")
    ] = 3.3,
    ylabel: Annotated[
        str | None, typer.Option(help="Label of the y axis; default: the metric's name.")
    ] = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Plot metrics, averaged over the runs of each group."""
    out = _default_file() if out is None else out
    if out.suffix.lower() not in PLOT_ENDINGS:
        raise ArgumentError(f"--out ends in {', '.join(PLOT_ENDINGS)}, not {out.name!r}")
    database = open_database(data_root)
    with extra("plot", "rla plot"):
        import matplotlib as mpl  # noqa: F401 - here, as what follows imports it late
        import pandas as pd  # noqa: F401

    from rla_client.plot.frames import BAND_NAMES, draw, gather, notes
    from rla_client.plot.style import paper_style

    records = chosen.some(database, light=group is None)
    metrics = metrics or _likely(records)
    frame = database.frame(records, whole=group is not None)
    groups = [name.strip() for name in group.split(",")] if group else None
    found = gather(frame, metrics, database=database, group=groups, x=x, bound=bound)
    figure = draw(found, band=band, smooth=smooth, width=width, ylabel=ylabel)
    out.parent.mkdir(parents=True, exist_ok=True)
    with paper_style():  # fonts as text in PDF and SVG
        figure.savefig(out, metadata=PLOT_MARK if out.suffix.lower() == ".png" else None)
    from rla_client.code.written_files import note_written

    note_written(database.data_root, out)
    drawn = sum(map(len, found.groups.values()))
    lacking = [f"{len(records) - drawn} without the metric left out"] if drawn < len(records) else []
    told = [*([BAND_NAMES[band]] if band in BAND_NAMES else []), *lacking, *notes(found)]
    curves = f" in {len(found.groups)} curve(s)" if found.by else ""
    facts = {"file": str(out), "metrics": metrics, "runs": drawn, "curves": len(found.groups), "notes": told}
    print_done(facts, "; ".join([f"{out}: {drawn} run(s){curves}", *told]), as_json=as_json)


def _default_file() -> Path:
    """Where a plot goes that nobody named a file for; never over a file that `rla plot` did not write."""
    out = Path(PLOT_NAME)
    if out.exists():
        with open_plain(out, links=True) as file:
            if PLOT_MARK["Software"].encode() not in file.read(MARK_WITHIN):
                raise ArgumentError(
                    f"{out} is there and is not from rla plot; name a file (-o {out} replaces this one)"
                )
    return out


def _likely(records: list[Record]) -> list[str]:
    """The metric to plot where none was named, and a line that says so; DatabaseError: the runs have none."""
    found = likely_of(records)
    if found is None:
        raise DatabaseError("none of these runs has a metric with numbers yet")
    say_aside(f"{found}: chosen by its name; to choose another: rla plot METRIC (rla metrics lists them)")
    return [found]


@takes_runs()
def tb(
    *,
    chosen: Selection,
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.")] = 6006,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    print_only: Annotated[
        bool, typer.Option("--print", help="Only make the log folder and print its path.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Start TensorBoard on a selection of runs; --json only with --print."""
    import signal
    import subprocess
    import tempfile
    from importlib.util import find_spec

    from rla_client.database.tensorboard_folders import fresh_logdir, make_logdir, tensorboard_folders

    database = open_database(data_root)
    records = chosen.records(database)
    folders = tensorboard_folders(database.data_root, records)
    if not folders:
        raise DatabaseError("none of the chosen runs has TensorBoard events")
    if print_only:
        folder = fresh_logdir(clock())
        make_logdir(folders, folder, copy=False)
        print_done({"file": str(folder), "runs": len(folders)}, str(folder), as_json=as_json)
        return
    if find_spec("tensorboard") is None:
        raise DatabaseError("rla tb needs tensorboard: pip install 'rla-agent[plot]'")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the folder goes, TensorBoard ends
    with tempfile.TemporaryDirectory(prefix="rla-tb-") as made:
        make_logdir(folders, Path(made) / "runs", copy=False)
        say_aside(f"{len(folders)} run(s); Ctrl-C ends it")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", f"{made}/runs", "--port", str(port)]
        raise typer.Exit(subprocess.run([*command, "--host", host], check=False).returncode)


# -- live ----------------------------------------------------------------------------------------


def web(
    data_root: DataRoots = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port; 0 picks a free one; default: the first free one from 8787."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; default: this machine only.")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Another host name under which the page may be opened (repeatable)."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser if there is a screen.")
    ] = True,
) -> None:
    """Show runs, curves and files in a browser, live."""
    roots = _roots(data_root)
    with extra("web", "rla web"):
        from rla_client.web.serve import serve
    serve(roots, host=host, port=port, allowed=allow_host or [], browser=browser, say=_say_now)


def _roots(given: list[Path] | None) -> list[Path]:
    return [open_database(root).data_root for root in (given or (None,))]


def _say_now(text: str) -> None:
    """Also into a pipe or a file before the server ends."""
    say(text)
    sys.stdout.flush()


def report(
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The file to write.")],
    data_root: DataRoots = None,
    view: Annotated[str | None, typer.Option(help="A view that was stored in `rla web` (Views…).")] = None,
    where: Where = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="One curve with a band for each value of these.")
    ] = None,
    smooth: Annotated[float | None, typer.Option(min=0, help="Smooth over so many points.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST_SHOWN, help="How many runs, the newest ones.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Write it again whenever something is new, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(min=1, help="Seconds between two looks of --follow.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Write the page of runs as one file that a browser opens without a server, 2 MB at most."""
    roots = _roots(data_root)
    with extra("web", "rla report"):
        from rla_client.web.report import view_of, write_report
        from rla_client.web.site import Site
    own = {"where": where, "group": group, "smooth": None if smooth is None else f"{smooth:g}"}
    site = Site(roots)
    shown = view_of(site, view, {name: [value] for name, value in own.items() if value})

    def written(size: int, left_out: int) -> None:
        done = {"file": str(out), "bytes": size, "left_out": left_out}
        without = f", without the {left_out} oldest runs, which do not fit" if left_out else ""
        print_done(done, f"{out}: {size / 1e6:.2f} MB{without}", as_json=as_json)
        sys.stdout.flush()

    with suppress(KeyboardInterrupt):
        write_report(out, site, shown, limit=limit, follow_s=every if follow else None, written=written)


def mcp(data_root: DataRoot = None) -> None:
    """Answer an assistant's questions about runs (Model Context Protocol on stdin and stdout), read-only."""
    database = open_database(data_root)
    database.progress = None
    with extra("mcp", "rla mcp"):
        import pandas as pd  # noqa: F401 - curves need it

        from rla_client.cli.mcp import make_server
    make_server(database).run("stdio")


@takes_runs()
def top(*, chosen: Selection, data_root: DataRoot = None) -> None:
    """Show runs, curves, logs and machines in this terminal, live; `?` lists the keys."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ArgumentError("rla top needs a terminal\nhint: rla ls prints the runs once")
    database = open_database(data_root)
    database.progress = None  # it would write into the screen
    with extra("top", "rla top"):
        from rla_client.cli.top import MAX_SHOWN, Source, TopApp

    def look(where: str | None) -> list[Record]:
        if where is None and not chosen.given:
            return database.records(limit=MAX_SHOWN)
        both = [f"({text})" for text in (chosen.where, where) if text]
        return replace(chosen, where=" and ".join(both) or None).records(database)

    look(None)  # a fault in the options is told before the screen changes
    TopApp(Source(database.data_root, look)).run()
