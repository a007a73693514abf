"""Summary of a transfer."""

from __future__ import annotations

import json

import typer

from rla_agent.replicate import status_text
from rla_agent.replicate.transfer import tally
from rla_client.contract.text.terminal_text import printable


def end_with_summary(verb: str, tally: tally.Tally, *, as_json: bool) -> None:
    """Print the summary, and exit with 1 after a failure."""
    print_summary(verb, tally, as_json=as_json)
    if tally.failed:
        raise typer.Exit(1)


def print_summary(verb: str, tally: tally.Tally, *, as_json: bool) -> None:
    """Print the transferred files; as JSON one line for each repeated pull."""
    size = status_text.size_text(tally.bytes)
    text = f"{verb} {tally.files} file(s), {size}; {tally.same} were there already"
    facts = {"files": tally.files, "bytes": tally.bytes, "already_there": tally.same}
    failed_names = [printable(failed) for failed in tally.failed]
    left_out = [printable(name) for name in tally.left_out]
    typer.echo(json.dumps({**facts, "failed": failed_names, "left_out": left_out}) if as_json else text)
    for name in left_out:
        typer.echo(f"skipped: an object of the bucket whose key is no file name: {name}", err=True)
    if not (tally.files or tally.same or tally.failed):
        typer.echo("no item is selected; see --table, --index, --since, --until and --kind", err=True)
    for failed in failed_names:
        typer.echo(f"failed: {failed}", err=True)
