"""Command `rla-agent run`."""

from __future__ import annotations

from typing import Annotated

import typer

from rla_agent.command.group import app
from rla_agent.command.options import ConfigOption, settings_of
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples


@app.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    epilog=examples("rla-agent run -- python train.py", "rla-agent run --drain 300 -- torchrun train.py"),
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    drain_s: Annotated[
        float,
        typer.Option("--drain", min=0, help="Seconds to wait, after the command, until its data are stored."),
    ] = 60.0,
    console: Annotated[
        bool, typer.Option(help="Copy the command's output to console.txt in the log folder of its runs.")
    ] = True,
    config: ConfigOption = None,
) -> None:
    """Run a command with an agent of its own, for batch jobs and containers."""
    from rla_agent.command.job.run_command import run_command  # noqa: PLC0415 - only here

    settings = settings_of(config)
    code = run_command(command, find_places(), settings, drain_s=drain_s, console=console, config=config)
    raise typer.Exit(code)
