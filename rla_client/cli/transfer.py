"""`rla export`, `import`, `lake`, `sql`, `push`, `pull`, `verify`: runs taken out, brought in, and copied.

`rla lake build|verify|status|drop` keeps ended runs as Parquet beside the database; `rla sql` queries both.

Copying between a database and its master is the agent package's work (`rla-agent transfer …`), started as a
process of its own, so that the client package never imports the agent's. `--config` and `--data-root` are
found as for the other commands (the configuration also beside and above the database); everything else is
passed on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.options import (
    MASTER,
    MOMENT,
    MOST_SHOWN,
    TAKE,
    AsCsv,
    AsJson,
    DataRoot,
    Metrics,
    Selection,
    Yes,
    add_command,
    agree,
    held,
    open_database,
    print_done,
    print_rows,
    say,
    say_aside,
    takes_runs,
)
from rla_client.config.project import require_config
from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.contract.filesystem.atomic_write import replacing
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.csv_lines import rows_text
from rla_client.database.clock import clock as now
from rla_client.database.text.machine_text import json_text
from rla_client.database.text.numbers import bytes_text
from rla_client.database.tree.data_root import find_data_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    import duckdb
    import pyarrow as pa

    from rla_client.database.lake.sql_query import Clock

Bucket = Annotated[
    str, typer.Option("--bucket", help="Use the lake in a bucket: s3://bucket/prefix, gs://… or az://…")
]
Endpoint = Annotated[str, typer.Option("--endpoint", help="Address of a store that is not the vendor's own.")]

TERMINAL_LIMIT = 100  # rows on a terminal; a pipe and files get all
BATCH = 10_000  # rows at once into a file or a pipe
MAX_TABLE_BYTES = 64 << 20  # of a table, which needs all rows at once
MAX_TABLE_ROWS = 100_000  # its columns are as wide as their widest cell, so all rows are held
MAX_QUERY_BYTES = 1 << 20
MAX_SHOWN = 20  # runs or parts that are named
INTERRUPTED_S = 1.0  # enough to end by the terminal's Ctrl-C
_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
_HELP = {
    "push": "Send items to the master; files it already has are not replaced.",
    "pull": "Fetch items from the master; local files are not replaced. --follow keeps fetching.",
    "verify": "Compare the master with what was sent: every file is hashed, unless --sizes.",
}
_EXAMPLES = {
    "push": ("rla push", "rla push --table cartpole --kind checkpoint"),
    "pull": ("rla pull", "rla pull --table cartpole --follow"),
    "verify": ("rla verify", "rla verify --sizes"),
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    lines = ("rla export runs.csv", "rla export curves.parquet --metric return --table cartpole")
    add_command(app, export, TAKE, *lines)
    lines = ("rla import tensorboard runs/ --table cleanrl", "rla import csv results/progress.csv")
    add_command(app, import_, TAKE, *lines, name="import")
    lake_app = typer.Typer(
        help="Keep ended runs as Parquet files, for fast queries over many.", no_args_is_help=True
    )
    lines = ("rla lake build", "rla lake build --bucket s3://runs/cartpole")
    add_command(lake_app, build, None, *lines)
    add_command(lake_app, verify, None, "rla lake verify", "rla lake verify --data-root data")
    add_command(lake_app, status, None, "rla lake status", "rla lake status --json")
    add_command(lake_app, drop, None, "rla lake drop", "rla lake drop --yes")
    whole = examples("rla lake build", "rla lake status")
    app.add_typer(lake_app, name="lake", rich_help_panel=TAKE, epilog=whole)
    lines = (
        "rla sql 'SELECT state, count(*) FROM runs GROUP BY state'",
        "rla sql --csv 'SELECT run, seed FROM params' > seeds.csv",
    )
    add_command(app, sql, TAKE, *lines)
    for name, text in _HELP.items():
        shown = examples(*_EXAMPLES[name])
        app.command(name, help=text, context_settings=_PASS_ON, rich_help_panel=MASTER, epilog=shown)(
            _passing
        )


# -- files of other tools ------------------------------------------------------------------------


@takes_runs()
def export(
    out: Annotated[
        Path, typer.Argument(help="FILE.csv, FILE.jsonl, FILE.parquet, or a folder for --tensorboard.")
    ],
    *,
    chosen: Selection,
    metric: Metrics = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl or parquet; default: by the file's suffix.")
    ] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Copy the TensorBoard event files into a folder.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Write runs (one row each), or with --metric their curves, to a file."""
    from rla_client.database.tensorboard_folders import make_logdir, tensorboard_folders
    from rla_client.database.text.table_files import write_table

    database = open_database(data_root)
    records = chosen.records(database)
    if tensorboard:
        folders = tensorboard_folders(database.data_root, records)
        make_logdir(folders, out, copy=True)
        facts: dict[str, object] = {"file": str(out), "runs": len(folders)}
        print_done(facts, f"{out}: event files of {len(folders)} run(s)", as_json=as_json)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    frame = database.curves(records, metric) if metric else database.frame(records).dropna(axis=1, how="all")
    written = write_table(frame, out, form)
    from rla_client.code.written_files import note_written

    note_written(database.data_root, out)
    facts = {"file": str(out), "rows": len(frame), "runs": len(records)}
    print_done(facts, f"{out}: {len(frame)} rows of {len(records)} run(s), {written}", as_json=as_json)


def import_(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="wandb, mlflow, trackio, neptune, aim, sacred, tensorboard, garage or csv."
        ),
    ],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="What that tool wrote: a folder, or one file (not of garage, aim, sacred).",
            exists=True,
        ),
    ],
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            "-t",
            help="Task table to import into; default: the project of each run, else `imported`.",
        ),
    ] = None,
    media: Annotated[
        bool, typer.Option("--media/--no-media", help="Also copy images, videos and other files of the runs.")
    ] = True,
    reruns: Annotated[
        bool, typer.Option("--reruns", help="Also import the runs that `rla rerun` made.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Import runs of other tools; those that were imported before are left as they are.

    Ended half-way, the same command continues where it stopped.
    """
    from rla_client.database.imports.import_logs import import_logs

    root = open_database(data_root, new=True).data_root
    with held(root):
        done = import_logs(root, kind, folder, table, now(), reruns=reruns, media=media)
    made, there, problems = done.made, done.there, done.problems
    for problem in problems:
        say_aside(f"left out: {problem}")
    for remark, count in done.remarks.items():
        say_aside(f"{count} run(s): {remark}")
    counts = Counter(run.rsplit("/", 4)[0] for run in made)
    where = ", ".join(f"{name} ({count})" if len(counts) > 1 else name for name, count in counts.items())
    told = f"imported {len(made)} run(s)" + (f" into table {where}" if made else "")
    told += f"; {len(there)} were there already" if there else ""
    facts = {
        "tables": dict(counts),
        "runs": len(made),
        "already_there": len(there),
        "left_out": [*problems],
        "remarks": dict(done.remarks),
    }
    print_done(facts, told, as_json=as_json)
    if problems and not made and not there:
        raise typer.Exit(1)


# -- the lake ------------------------------------------------------------------------------------


def _root(data_root: Path | None) -> Path:
    """The database's folder, once pyarrow is there."""
    _need_pyarrow()
    return open_database(data_root).data_root


def _need_pyarrow() -> None:
    """Be sure that a lake can be read; DatabaseError: pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise DatabaseError("the lake needs pyarrow: pip install 'rla-agent[lake]'")


def _progress(done: int, total: int) -> None:
    if total and sys.stderr.isatty():
        print(f"\r{done} of {total} runs…", end="", file=sys.stderr, flush=True)  # noqa: T201


def build(
    data_root: DataRoot = None, bucket: Bucket = "", endpoint: Endpoint = "", as_json: AsJson = False
) -> None:
    """Add the runs that ended since the last build; safe to run from cron, as often as you like."""
    from rla_client.database.lake.build import build as build_lake

    if bucket:
        from rla_client.database.lake.bucket_build import build_bucket
        from rla_client.database.lake.bucket_lake import opened

        _need_pyarrow()
        with opened(bucket, endpoint) as lake:
            done = build_bucket(lake, now(), _progress)
    else:
        done = build_lake(_root(data_root), now(), _progress)
    if done is None:
        print_done({"runs": None}, "another process builds this lake; nothing was done", as_json=as_json)
        return
    for problem in done.problems[:MAX_SHOWN]:
        say_aside(f"left out: {problem}")
    counts = f"{done.read} read, {done.removed} removed, {done.parts} part(s) written"
    left = f"; {done.left_out} left for the next time" if done.left_out else ""
    told = f"{done.runs} run(s) in the lake; {counts}, {done.took_s:.1f} s{left}"
    print_done(asdict(done), told, as_json=as_json)


def verify(
    data_root: DataRoot = None, bucket: Bucket = "", endpoint: Endpoint = "", as_json: AsJson = False
) -> None:
    """Compare every run of the lake with its files; runs that differ are removed from the lake."""
    from rla_client.database.lake.verify import verify as verify_lake

    if bucket:
        from rla_client.database.lake.bucket_build import verify_bucket
        from rla_client.database.lake.bucket_lake import opened

        _need_pyarrow()
        with opened(bucket, endpoint) as lake:
            found = verify_bucket(lake, now(), _progress)
    else:
        found = verify_lake(_root(data_root), now(), _progress)
    lines = [f"damaged: {name}: {why}" for name, why in found.broken[:MAX_SHOWN]]
    lines += [f"differs: {run}" for run in found.wrong[:MAX_SHOWN]]
    lines.append(
        f"{found.checked} run(s) are as their files say, less {len(found.wrong)} that differ and "
        f"{len(found.broken)} damaged part(s); {found.changed} changed since the build, as readers see"
    )
    print_done(asdict(found), "\n".join(lines), as_json=as_json)
    if found.wrong or found.broken:
        say_aside(
            "they were removed from the lake\nhint: rla lake build"
            if found.dropped
            else "another process builds it; verify again later"
        )
        raise typer.Exit(1)


def status(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Show what is in the lake and what is not yet."""
    from rla_client.database.lake.status import status as lake_status

    found = lake_status(_root(data_root), now())
    when = "never" if found.built is None else time.strftime(MOMENT, time.localtime(found.built))
    told = (
        f"{found.inside} run(s) in {found.parts} part(s), {bytes_text(found.bytes)}; newest part {when}\n"
        f"{found.missing} ended run(s) wait for `rla lake build`, {found.changed} of the lake changed since, "
        f"{found.live} are not ended"
    )
    print_done(asdict(found), told, as_json=as_json)


def drop(yes: Yes = False, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Delete the lake; the runs stay, and the next build recreates it."""
    from rla_client.database.lake.lake_writer import building

    root = open_database(data_root).data_root
    agree("Delete the lake? The runs stay.", yes)
    with building(root) as builder:
        if builder is None:
            raise DatabaseError("another process builds this lake\nhint: try again when it is done")
        builder.drop()
    print_done({"dropped": True}, "the lake is deleted", as_json=as_json)


# -- SQL -----------------------------------------------------------------------------------------


def sql(
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="One SELECT over runs, params, last, rows, system, files."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the query from a file; - is stdin.")
    ] = None,
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Write the rows to this file.")] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=0, max=MOST_SHOWN, help="Print at most this many rows; 0 for all."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.0, help="Stop the query after this many seconds.")] = 300.0,
    data_root: DataRoot = None,
    bucket: Bucket = "",
    endpoint: Endpoint = "",
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Query runs in SQL: `rla sql "SELECT state, count(*) FROM runs GROUP BY state"`."""
    from contextlib import ExitStack

    from rla_client.database.lake.sql_query import Clock

    whole = as_json or as_csv or parquet is not None  # these are printed in parts
    text, clock = _query(query, file), Clock(timeout, None if whole else MAX_TABLE_BYTES)
    with ExitStack() as held:
        if bucket:
            result = _of_bucket(held, bucket, endpoint, text, clock)
        else:
            result = open_database(data_root).sql(text, clock)
        _show(result, clock, parquet, limit, as_json=as_json, as_csv=as_csv)


def _of_bucket(
    held: ExitStack, bucket: str, endpoint: str, query: str, clock: Clock
) -> duckdb.DuckDBPyConnection:
    """A query's result over a bucket's lake, whose files are there until `held` ends."""
    from rla_client.database.lake.bucket_lake import opened
    from rla_client.database.lake.bucket_query import query_bucket

    _need_pyarrow()
    lake = held.enter_context(opened(bucket, endpoint))
    result, without = query_bucket(lake, query, now(), clock)
    if without:
        say_aside(
            f"(without {without} run(s) that the bucket's lake does not have: live, or new since its build)"
        )
    return result


def _show(
    result: duckdb.DuckDBPyConnection,
    clock: Clock,
    parquet: Path | None,
    limit: int | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    from rla_client.database.lake.sql_query import fetched

    if parquet is not None:
        count = _write_parquet(result, clock, parquet)
        print_done({"file": str(parquet), "rows": count}, f"{parquet}: {count} rows", as_json=as_json)
        return
    machine = as_json or as_csv
    if limit is None:
        limit = TERMINAL_LIMIT if sys.stdout.isatty() and not machine else 0
    names = [column[0] for column in result.description or ()]
    if as_csv:
        sys.stdout.write(rows_text([names]))
        for batch in _batches(result, clock, limit):
            sys.stdout.write(rows_text(batch))
        return
    if as_json:
        _print_json(result, clock, _distinct(names), limit)
        return
    rows = fetched(result, (limit or MAX_TABLE_ROWS) + 1, clock)
    if not limit and len(rows) > MAX_TABLE_ROWS:
        raise ArgumentError(
            f"the query has more than {MAX_TABLE_ROWS} rows, too many for a table\n"
            "hint: --csv, --json and --parquet FILE take all of them; -n 1000 shows the first"
        )
    print_rows(names, [_cells(row) for row in rows[: limit or None]], as_json=False, as_csv=False)
    if limit and len(rows) > limit:
        _say_more(limit)


def _say_more(limit: int) -> None:
    say_aside(f"(more than {limit} rows; --limit 0 shows all)")


def _query(query: str | None, file: Path | None) -> str:
    if (query is None) == (file is None):
        raise ArgumentError('give one query, or -f FILE\nhint: rla sql "SELECT * FROM runs LIMIT 5"')
    if file is None:
        data = (query or "").encode("utf-8", "surrogateescape")
    elif str(file) == "-":
        data = sys.stdin.buffer.read(MAX_QUERY_BYTES)
    else:
        data = read_small(file, MAX_QUERY_BYTES, links=True)
    return data.decode("utf-8", "replace")


def _print_json(result: duckdb.DuckDBPyConnection, clock: Clock, names: list[str], limit: int) -> None:
    """As `print_rows`, in parts: all rows at once may take more memory than there is."""
    from decimal import Decimal

    ahead = "["
    for rows in _batches(result, clock, limit):
        numbers = ([float(cell) if isinstance(cell, Decimal) else cell for cell in row] for row in rows)
        text = json_text([dict(zip(names, row, strict=True)) for row in numbers])
        sys.stdout.write(ahead + text.removeprefix("[").removesuffix("\n]"))
        ahead = ","
    sys.stdout.write("[]\n" if ahead == "[" else "\n]\n")


def _batches(result: duckdb.DuckDBPyConnection, clock: Clock, limit: int) -> Iterator[list[list[object]]]:
    """The rows of a result, all for 0, some at a time."""
    from rla_client.database.lake.sql_query import fetched

    left = limit or sys.maxsize
    while left and (rows := fetched(result, min(BATCH, left), clock)):
        yield [_cells(row) for row in rows]
        left -= len(rows)
    if not left and fetched(result, 1, clock):
        _say_more(limit)


def _cells(row: tuple[Any, ...]) -> list[object]:
    """Values as the other commands print them."""
    return [" ".join(map(str, value)) if isinstance(value, list) else value for value in row]


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of columns, each once: the second `value` is `value_1`, as in DuckDB's `.df()`."""
    found: dict[str, None] = {}
    for name in names:
        free = (one for one in (name, *(f"{name}_{n}" for n in range(1, len(names)))) if one not in found)
        found[next(free)] = None
    return [*found]


def _write_parquet(result: duckdb.DuckDBPyConnection, clock: Clock, path: Path) -> int:
    """Write all rows, batch by batch, whole or not at all; how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, kind, *_ in result.description or ():
        if "UHUGEINT" in str(kind):  # Arrow would take it for a signed one
            raise ArgumentError(f"no Parquet file holds {name}, a UHUGEINT\nhint: CAST the column to VARCHAR")
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), clock.limits():
        warnings.simplefilter("ignore")  # DuckDB's advice is for who wrote the query in Python
        read = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch  # by DuckDB's age
        reader = read(BATCH)
    names = _distinct(reader.schema.names)
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    count = 0
    try:
        with replacing(path, durable=False) as temp, pq.ParquetWriter(temp, schema) as writer:
            while (batch := _next_batch(reader, clock)) is not None:
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
                count += batch.num_rows
    except pa.ArrowNotImplementedError as error:
        raise ArgumentError(f"{error}\nhint: CAST the column to VARCHAR") from error
    return count


def _next_batch(reader: pa.RecordBatchReader, clock: Clock) -> pa.RecordBatch | None:
    with clock.limits():
        return next(reader, None)


# -- the master ----------------------------------------------------------------------------------


def _passing(context: typer.Context) -> None:
    raise typer.Exit(_transfer(str(context.info_name), list(context.args)))


def _transfer(name: str, arguments: list[str]) -> int:
    """Run push, pull or verify as the user gave it; returns its exit code.

    DatabaseError where no rla_config.yaml, or no database, can be found from here; for push and verify also
    where the folder that was given is none.
    """
    command = [sys.executable, "-m", "rla_agent", "transfer", name]
    words = ["--data-root" if word == "-d" else word for word in arguments]
    if {"--help", "-h"} & set(words):
        return _print_help(command, name)
    root = _value(words, "--data-root")
    if root is None:
        root = os.environ.get("RLA_DATA_ROOT") or str(find_data_root(Path.cwd()))
        words += ["--data-root", root]
    if name != "pull":
        open_database(Path(root))
    if _value(words, "--config") is None:
        words += ["--config", str(require_config(Path.cwd(), Path(root).absolute()))]
    command += words
    with subprocess.Popen(command) as child:
        try:
            return child.wait()
        except KeyboardInterrupt:
            return _ended(child)


def _ended(child: subprocess.Popen[bytes]) -> int:
    """Let an interrupted child end as it likes; Ctrl-C reached it, too, a signal to us alone did not."""
    try:
        return child.wait(INTERRUPTED_S)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGINT)
        return child.wait()


def _print_help(command: list[str], name: str) -> int:
    """The agent package's own help, with this command's name; what is found here is not required."""
    env = {**os.environ, "COLUMNS": str(shutil.get_terminal_size((80, 24)).columns)}
    done = subprocess.run([*command, "--help"], stdout=subprocess.PIPE, text=True, check=False, env=env)
    text = done.stdout.partition(" Examples:")[0]  # which are of rla-agent
    text = text.replace(f"python -m rla_agent transfer {name}", f"rla {name}")
    if text:
        say(text.replace("[required]", "(or found)").replace("│ *  ", "│    ").rstrip("\n"))
        say("\n Examples:\n" + "\n".join(f" {line}" for line in _EXAMPLES[name]))
    return done.returncode


def _value(words: list[str], option: str) -> str | None:
    """What an option was given, None when it was not."""
    for word, following in zip(words, [*words, ""][1:], strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return None
