"""Command `rla-agent transfer verify`."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from rla_agent.command.master_target import target_failures
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import ProjectOption, RootOption
from rla_agent.replicate import ledger_schema, registry, status_text, target_config
from rla_agent.replicate.publish_complete import publish_complete
from rla_agent.replicate.repair import repair
from rla_agent.replicate.verify import Difference, verify_ledger
from rla_client.config.schema import Config, load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.terminal_text import printable

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@transfer_app.command(
    "verify",
    epilog=examples("rla-agent transfer verify --config rla_config.yaml --data-root data", "rla verify"),
)
def verify(
    config: ProjectOption,
    *,
    data_root: RootOption,
    sizes: Annotated[bool, typer.Option("--sizes", help="presence and size only")] = False,
    sample: Annotated[float, typer.Option(help="fraction of the files to read, 0 to 1")] = 1.0,
    fix: Annotated[
        bool, typer.Option("--fix", help="publish complete saves, send faulty files again")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the master with what was sent: every file is read and hashed, unless --sizes or --sample."""
    state = find_places().state
    with target_failures():
        loaded = load_config(config)
        published = publish_complete(data_root) if fix else []
        count, faults = verify_database(state, loaded, data_root, sizes=sizes, sample=sample, fix=fix)
    lines = [f"{fault.what}: {printable(fault.path)}" for fault in faults]
    lines += [f"published: {printable(path)}" for path in published]
    again = "; the agent sends them again" if fix and faults else ""
    lines.append(f"{count} file(s) checked, {len(faults)} fault(s){again}")
    listed = [{"fault": fault.what, "path": printable(fault.path)} for fault in faults]
    told = {"checked": count, "faults": listed, "published": [printable(path) for path in published]}
    typer.echo(json.dumps(told) if as_json else "\n".join(lines))
    if faults:
        raise typer.Exit(1)


def verify_database(
    state: Path,
    config: Config,
    data_root: Path,
    *,
    sizes: bool = False,
    sample: float = 1.0,
    fix: bool = False,
) -> tuple[int, list[Difference]]:
    """Compare one database with its master; see `verify_ledger`.

    Raises:
        RlaError: the ledger does not have this database, or the master cannot be reached.
    """
    target = target_config.target(config, registry.folder(state))
    nothing = f"nothing of {data_root} was sent to {status_text.shown_target(target.name)} from here"
    if not ledger_schema.ledger_path(state).exists():  # sqlite3 would make an empty one
        raise RlaError(nothing)
    root = os.fsencode(os.path.abspath(data_root))
    try:
        with closing(sqlite3.connect(ledger_schema.ledger_path(state), timeout=30.0)) as db:
            ledger_schema.upgrade(db, state)
            ids = "SELECT id FROM databases WHERE root = ? AND target = ?"
            row = db.execute(ids, (root, target.name)).fetchone()
            if row is None:
                raise RlaError(nothing)
            with closing(target.open()) as session:
                count, faults = verify_ledger(session, db, int(row[0]), sizes=sizes, sample=sample)
            if fix and faults:
                repair(db, faults)
    except sqlite3.Error as error:
        raise RlaError(f"the ledger cannot be read: {error}") from error
    return count, faults
