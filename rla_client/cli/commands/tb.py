"""`rla tb`: TensorBoard on a selection of runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.open_database import open_database
from rla_client.cli.options import AsJson, DataRoot
from rla_client.cli.output import print_done, say_aside
from rla_client.cli.registration import LOOK, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.contract.errors import DatabaseError
from rla_client.database.clock import clock


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, tb, LOOK, "rla tb", "rla tb --where 'lr == 0.1' --port 0")


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
        raise DatabaseError("rla tb needs tensorboard: pip install 'rla-agent[tb]'")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: ends all
    with tempfile.TemporaryDirectory(prefix="rla-tb-") as made:
        make_logdir(folders, Path(made) / "runs", copy=False)
        say_aside(f"{len(folders)} run(s); Ctrl-C ends it")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", f"{made}/runs", "--port", str(port)]
        raise typer.Exit(subprocess.run([*command, "--host", host], check=False).returncode)
