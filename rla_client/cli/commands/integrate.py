"""`rla integrate`: integration of our logger into a script."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.options import AsJson
from rla_client.cli.output import print_done, say_aside
from rla_client.cli.registration import BEGIN, add_command
from rla_client.contract.errors import ArgumentError

if TYPE_CHECKING:
    from rla_client.cli.integrate.source_edits import SourceEdits


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, integrate, BEGIN, "rla integrate train.py", "rla integrate train.py --write")


def integrate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The script that trains.")],
    write: Annotated[bool, typer.Option("--write", "-w", help="Change the file.")] = False,
    table: Annotated[
        str | None, typer.Option("--table", "-t", help="Of the runs of a script without a logger.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a script's logger lines become ours, as a diff; or change it."""
    from rla_client.cli.integrate.logger_lines import integrate as change
    from rla_client.cli.integrate.source_edits import SourceEdits
    from rla_client.contract.filesystem.atomic_write import write_atomic
    from rla_client.contract.safe_names import check_table_name
    from rla_client.database.text.safe_text import lines_text

    path = file.resolve()
    try:
        source = SourceEdits(path.read_bytes())
        found = change(source, check_table_name(table or path.stem))
        diff = _diff(source, file)
    except OSError as error:
        raise ArgumentError(f"{file} cannot be read: {error.strerror}") from error
    except ArgumentError as error:
        raise ArgumentError(f"{file}: {error}") from error
    if write and diff:
        write_atomic(path, source.result().encode(source.encoding), mode=path.stat().st_mode & 0o777)
    for line in found.by_hand:
        say_aside(f"by hand, {line}")
    facts = {
        "file": str(file),
        "changed": write and bool(diff),
        "libraries": found.libraries,
        "by_hand": found.by_hand,
        "diff": diff,
    }
    if write and diff:
        text = f"{file}: {', '.join(found.libraries)}"
    elif diff:
        text = lines_text(diff)
    else:
        text = (
            f"nothing to change in {file}: no logger is in it, and no loop that prints numbers\n"
            f"if it logs by another file or library: rla-agent run --capture -- python {file}\n"
            'else, in its loop: rla_client.log({"loss": loss}, step=step)'
        )
    print_done(facts, text, as_json=as_json)


def _diff(source: SourceEdits, file: Path) -> str:
    """The changes as a unified diff; empty without any."""
    if not source.changed:
        return ""
    before, after = (
        text.replace("\r\n", "\n").removesuffix("\n").split("\n") for text in (source.before, source.result())
    )
    lines = difflib.unified_diff(before, after, f"a/{file}", f"b/{file}", lineterm="")
    return "\n".join(lines) + "\n"
