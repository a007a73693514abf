"""`rla rerun`: repetition of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla_client.cli.experiment_folder import Experiment, find_log_dir
from rla_client.cli.options import AsJson, DataRoot, TableOption
from rla_client.cli.output import print_done
from rla_client.cli.registration import BEGIN, add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, rerun, BEGIN, "rla rerun @last", "rla rerun @last ../again")


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
    from rla_client.launcher.experiment_folder import RERUN_FOLDER, claim_folder
    from rla_client.launcher.item_place import ItemPlace

    log_dir = find_log_dir(run, table, data_root)
    # Beside a plain run, because data/local is left out of code archives. For an item neither among the items
    # nor in the working folder, where the folder would count as code of the project.
    place = ItemPlace.of(log_dir)
    base = log_dir.parent if place is None else Path(place.data_root, *RERUN_FOLDER)
    wanted = folder or base / f"{log_dir.name[:100]}-rerun"
    target = claim_folder(wanted, existing=folder is not None)
    compared = relaunch.rerun(log_dir, target)
    first, second = compared.rows
    equal = compared.equal
    verdict = f"equal: {first} rows, time columns aside"
    verdict = verdict if equal else f"different: {first} rows then, {second} now"
    lines = [f"{verdict}; the repeated run is in {target}"]
    for row, column, then, now in () if equal else compared.differences:
        lines.append(f"  row {row}, {column}: {then} then, {now} now")
    names = ("row", "column", "then", "now")
    differences = [dict(zip(names, one, strict=True)) for one in compared.differences]
    facts = {"equal": equal, "rows": [first, second], "file": str(target), "differences": differences}
    print_done(facts, "\n".join(lines), as_json=as_json)
    if not equal:
        raise typer.Exit(1)
