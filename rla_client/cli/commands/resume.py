"""`rla resume`: continued run of a launcher."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_client.cli.experiment_folder import Experiment, find_log_dir
from rla_client.cli.options import DataRoot, TableOption
from rla_client.cli.registration import BEGIN, add_command


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ("rla resume @last", "rla resume data/local/experiment/ppo --from-epoch 10")
    add_command(app, resume, BEGIN, *lines)


def resume(
    run: Experiment,
    from_epoch: Annotated[
        str, typer.Option("--from-epoch", metavar="N", help="Epoch of the snapshot, or first, or last.")
    ] = "last",
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Continue an interrupted run of a launcher (`wrap_experiment`): same folder, same rows.

    Other runs continue when their command is run again: RLA_RUN_ID=NAME RLA_RESUME=allow COMMAND.
    """
    from rla_client.launcher import relaunch

    raise typer.Exit(relaunch.resume(find_log_dir(run, table, data_root), from_epoch))
