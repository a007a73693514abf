"""Output of commands: text, JSON or CSV."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence


def say(text: str) -> None:
    """Print to stdout."""
    print(text)  # noqa: T201


def say_aside(text: str) -> None:
    """Print to stderr text that is not the command's answer."""
    from rla_client.database.text.safe_text import lines_text

    print(lines_text(text), file=sys.stderr)  # noqa: T201


def teller(*, as_json: bool) -> Callable[[str], None]:
    """Function to print progress with: to stderr if stdout is JSON."""
    return say_aside if as_json else say


def print_done(facts: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Print the result of a command as text or JSON."""
    from rla_client.database.text.machine_text import json_text

    say(json_text(facts) if as_json else text)


def print_rows(
    names: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool, as_csv: bool
) -> None:
    """Print a table as text, JSON or CSV."""
    from rla_client.database.text.machine_text import csv_text, json_text
    from rla_client.database.text.text_tables import table_text

    if as_json:
        say(json_text([dict(zip(names, row, strict=True)) for row in rows]))
    elif as_csv:
        say(csv_text(names, rows))
    else:
        say(table_text(names, rows))
