"""Registration of commands.

Each has a group in the help, and examples.
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
    """Put a command on an app.

    Args:
        app: of `rla`, or of a group of commands.
        function: does it.
        panel: its group in `rla --help`; None below a group of commands.
        lines: examples at the end of its help.
        name: None: as the function is called.
    """
    app.command(name or function.__name__, rich_help_panel=panel, epilog=examples(*lines))(function)
