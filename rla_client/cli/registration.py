"""Registration of commands.

Each command has a group in the help, and examples.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from rla_client.contract.text.command_line import examples

BEGIN, LOOK, TAKE = "Begin and repeat runs", "Look at runs", "Take out, bring in"
CHANGE, CHECK, MASTER = "Change runs", "Check the database", "The master"
"""Groups of commands in `rla --help`."""


def add_command(
    app: typer.Typer, function: Callable[..., None], panel: str | None, *lines: str, name: str | None = None
) -> None:
    """Add a command to an app.

    Args:
        app: app of `rla`, or of a group of commands.
        function: the command.
        panel: its group in `rla --help`; None inside a group of commands.
        lines: examples at the end of its help.
        name: name of the command; None: the function's name.
    """
    app.command(name or function.__name__, rich_help_panel=panel, epilog=examples(*lines))(function)
