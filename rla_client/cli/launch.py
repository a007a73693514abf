"""`rla resume`, `rla restore-code`, `rla rerun`: runs of wrap_experiment, continued and repeated.

A run is a folder (`data/local/experiment/...`, or an item's log folder), or a RUN of the database as the
other commands take it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import DataRoot, TableOption, open_database, say
from rla_client.contract.errors import LaunchError, RlaError

Experiment = Annotated[
    str, typer.Argument(metavar="DIR_OR_RUN", help="Folder of the run, or index, a unique part of it, @last.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(resume)
    app.command("restore-code")(restore_code)
    app.command()(rerun)


def resume(
    run: Experiment,
    from_epoch: Annotated[
        str, typer.Option("--from-epoch", metavar="N", help="Epoch of the snapshot; also first, last.")
    ] = "last",
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Go on with an interrupted run: same folder, same rows, as if it had never stopped."""
    from rla_client.launcher import commands

    raise typer.Exit(commands.resume(_log_dir(run, table, data_root), from_epoch))


def restore_code(
    run: Experiment,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the code.")],
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Give back the source tree that a run was started from, each file checked by its hash."""
    from rla_client.launcher import commands

    manifest = commands.restore_code(_log_dir(run, table, data_root), folder)
    say(f"{len(manifest.files)} files in {folder}, each with the hash it had")
    for name, why in sorted(manifest.left_out.items()):
        say(f"never archived: {name} ({why})")


def rerun(
    run: Experiment,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A new folder for code and run; default: <run>-rerun, beside it or, for items, in "
            "local/rerun of the database.",
        ),
    ] = None,
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Run the same code and parameters again and compare the curves (exit code 1: they differ)."""
    from rla_client.launcher import commands
    from rla_client.launcher.database_run import ItemPlace
    from rla_client.launcher.directories import RERUN_FOLDER, claim_folder

    log_dir = _log_dir(run, table, data_root)
    # beside a plain run: data/local is no part of later archives; not among a database's items, nor
    # here, where the folder would be taken for code of the project
    place = ItemPlace.of(log_dir)
    base = log_dir.parent if place is None else Path(place.data_root, *RERUN_FOLDER)
    wanted = folder or base / f"{log_dir.name[:100]}-rerun"
    target = claim_folder(wanted, existing=folder is not None)
    compared = commands.rerun(log_dir, target)
    first, second = compared.rows
    if compared.equal:
        say(f"equal: {first} rows, time columns aside; the repeated run lies in {target}")
        return
    say(f"different: {first} rows then, {second} now; the repeated run lies in {target}")
    for row, column, then, now in compared.differences:
        say(f"  row {row}, {column}: {then} then, {now} now")
    raise typer.Exit(1)


def _log_dir(reference: str, table: str | None, data_root: Path | None) -> Path:
    folder = Path(reference)
    if folder.is_dir():
        return folder.absolute()
    try:
        database = open_database(data_root)
    except RlaError as error:
        message = f"there is no folder {reference}, and for a run of a database: {error}"
        raise LaunchError(message) from error
    record = database.find(reference, table).record
    return Path(database.data_root) / "log" / record.table / record.index
