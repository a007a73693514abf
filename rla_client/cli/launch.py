"""`rla resume`, `rla restore-code`, `rla rerun`: runs of wrap_experiment, continued and repeated.

A run is a folder (`data/local/experiment/...`, or an item's log folder), or a RUN of the database as the
other commands take it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.options import BEGIN, AsJson, DataRoot, TableOption, open_database, print_done
from rla_client.contract.command_line import examples
from rla_client.contract.errors import LaunchError, RlaError

Experiment = Annotated[
    str,
    typer.Argument(
        metavar="DIR_OR_RUN", help="The run's folder, its index, a unique part of that, or @last."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=BEGIN,
        epilog=examples("rla resume @last", "rla resume data/local/experiment/ppo --from-epoch 10"),
    )(resume)
    app.command(
        "restore-code",
        rich_help_panel=BEGIN,
        epilog=examples(
            "rla restore-code @last ../then", "rla restore-code data/local/experiment/ppo ../then"
        ),
    )(restore_code)
    app.command(rich_help_panel=BEGIN, epilog=examples("rla rerun @last", "rla rerun @last ../again"))(rerun)


def resume(
    run: Experiment,
    from_epoch: Annotated[
        str, typer.Option("--from-epoch", metavar="N", help="Epoch of the snapshot, or first, or last.")
    ] = "last",
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Continue an interrupted run: same folder, same rows, as if it had never stopped."""
    from rla_client.launcher import relaunch

    raise typer.Exit(relaunch.resume(_log_dir(run, table, data_root), from_epoch))


def restore_code(
    run: Experiment,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the code.")],
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Restore the source tree that a run was started from; every file is checked by its hash."""
    from rla_client.launcher import relaunch

    manifest = relaunch.restore_code(_log_dir(run, table, data_root), folder)
    left = sorted(manifest.left_out.items())
    lines = [f"{len(manifest.files)} files in {folder}, each all hashes as recorded"]
    lines += [f"not archived: {name} ({why})" for name, why in left]
    facts = {"file": str(folder), "files": len(manifest.files), "left_out": dict(left)}
    print_done(facts, "\n".join(lines), as_json=as_json)


def rerun(
    run: Experiment,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]",
            help="A new folder for code and run; default: <run>-rerun beside the run or, for items, in "
            "local/rerun of the database.",
        ),
    ] = None,
    table: TableOption = None,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Run the same code and parameters again and compare the curves (exit code 1: they differ)."""
    from rla_client.launcher import relaunch
    from rla_client.launcher.database_run import ItemPlace
    from rla_client.launcher.directories import RERUN_FOLDER, claim_folder

    log_dir = _log_dir(run, table, data_root)
    # beside a plain run: data/local is not part of later archives; not among a database's items, nor
    # here, where the folder would be taken for code of the project
    place = ItemPlace.of(log_dir)
    base = log_dir.parent if place is None else Path(place.data_root, *RERUN_FOLDER)
    wanted = folder or base / f"{log_dir.name[:100]}-rerun"
    target = claim_folder(wanted, existing=folder is not None)
    compared = relaunch.rerun(log_dir, target)
    first, second = compared.rows
    lines = [
        f"equal: {first} rows, time columns aside; the repeated run is in {target}"
        if compared.equal
        else f"different: {first} rows then, {second} now; the repeated run is in {target}"
    ]
    names = ("row", "column", "then", "now")
    differences = [dict(zip(names, one, strict=True)) for one in compared.differences]
    if not compared.equal:
        lines += [
            f"  row {row}, {column}: {then} then, {now} now"
            for row, column, then, now in compared.differences
        ]
    facts = {
        "equal": compared.equal,
        "rows": [first, second],
        "file": str(target),
        "differences": differences,
    }
    print_done(facts, "\n".join(lines), as_json=as_json)
    if not compared.equal:
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
