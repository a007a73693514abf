"""`rla lake build|verify|status|drop`: ended runs as Parquet beside the database."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path

import typer

from rla_client.cli.confirmation import agree
from rla_client.cli.lake_options import Bucket, Endpoint, need_pyarrow
from rla_client.cli.open_database import open_database
from rla_client.cli.options import MOMENT, AsJson, DataRoot, Yes
from rla_client.cli.output import print_done, say_aside
from rla_client.cli.registration import TAKE, add_command
from rla_client.contract.errors import DatabaseError
from rla_client.contract.text.command_line import examples
from rla_client.database.clock import clock as now
from rla_client.database.text.numbers import bytes_text

MAX_SHOWN = 20  # runs or parts that are printed


def register(app: typer.Typer) -> None:
    """Add the command."""
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


def _root(data_root: Path | None) -> Path:
    """Data root of the database, after a check for pyarrow."""
    need_pyarrow()
    return open_database(data_root).data_root


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

        need_pyarrow()
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
    text = f"{done.runs} run(s) in the lake; {counts}, {done.took_s:.1f} s{left}"
    print_done(asdict(done), text, as_json=as_json)


def verify(
    data_root: DataRoot = None, bucket: Bucket = "", endpoint: Endpoint = "", as_json: AsJson = False
) -> None:
    """Compare every run of the lake with its files; runs that differ are removed from the lake."""
    from rla_client.database.lake.verify import verify as verify_lake

    if bucket:
        from rla_client.database.lake.bucket_lake import opened
        from rla_client.database.lake.bucket_verify import verify_bucket

        need_pyarrow()
        with opened(bucket, endpoint) as lake:
            found = verify_bucket(lake, now(), _progress)
    else:
        found = verify_lake(_root(data_root), now(), _progress)
    lines = [f"damaged: {name}: {why}" for name, why in found.broken[:MAX_SHOWN]]
    lines += [f"differs: {run}" for run in found.wrong[:MAX_SHOWN]]
    lines.append(
        f"{found.checked} run(s) compared with their files: {len(found.wrong)} differ; "
        f"{len(found.broken)} part(s) damaged; {found.changed} run(s) changed since the build, which queries "
        "read from their files"
    )
    print_done(asdict(found), "\n".join(lines), as_json=as_json)
    if found.wrong or found.broken:
        say_aside(
            "wrong and damaged parts were removed from the lake\nhint: rla lake build"
            if found.dropped
            else "another process builds the lake; verify again later"
        )
        raise typer.Exit(1)


def status(data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Show what is in the lake and what is not yet."""
    from rla_client.database.lake.status import status as lake_status

    found = lake_status(_root(data_root), now())
    when = "never" if found.built is None else time.strftime(MOMENT, time.localtime(found.built))
    text = (
        f"{found.inside} run(s) in {found.parts} part(s), {bytes_text(found.bytes)}; newest part {when}\n"
        f"{found.missing} ended run(s) wait for `rla lake build`, {found.changed} of the lake changed since, "
        f"{found.live} are not ended"
    )
    print_done(asdict(found), text, as_json=as_json)


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
