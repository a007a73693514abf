"""Command `rla-agent logs`."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from rla_agent.command.failures import EXIT_PLACE, EXIT_STATE, fail
from rla_agent.command.group import app
from rla_agent.service.log_tail import follow_log, last_lines
from rla_client.contract.agent.places import find_places
from rla_client.contract.text.command_line import examples

MOST_LINES = 1_000_000_000  # that can be asked for; far more do not fit the types below


@app.command(epilog=examples("rla-agent logs", "rla-agent logs --follow"))
def logs(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they are written.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=MOST_LINES, help="How many lines, the last ones.")
    ] = 50,
) -> None:
    """Print the agent's log."""
    path = find_places().log
    if not path.exists() and not follow:
        fail(f"there is no log yet: {path}", EXIT_STATE)
    try:
        following = follow_log(path) if follow else iter(())
        for line in itertools.chain(last_lines(path, lines), following):
            typer.echo(line)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", EXIT_PLACE)
