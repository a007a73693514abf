"""Command `rla-agent transfer lacks`, which `rla rm` calls."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import typer

from rla_agent.command.master_session import session_failures
from rla_agent.command.transfer.group import transfer_app
from rla_agent.command.transfer.options import ItemsArgument, KindOption, RootOption, read_items
from rla_agent.replicate.ledger_rows import PRUNED
from rla_agent.replicate.ledger_schema import STEPS, ledger_path
from rla_agent.replicate.worker.scan import Scanner, ScanScope
from rla_agent.store.sqlite import connect_readonly
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.item.prune_notes import pruned_files
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.command_line import examples


@transfer_app.command(
    "lacks",
    epilog=examples(
        "rla-agent transfer lacks --data-root data RUN",
        "rla-agent transfer lacks --data-root data --kind checkpoint RUN",
    ),
)
def lacks(items: ItemsArgument, data_root: RootOption, kind: KindOption = None) -> None:
    """Print as JSON the files and bytes of these runs that no master has yet, and how many are pruned."""
    with session_failures():
        typer.echo(
            json.dumps(
                _files_not_on_master(read_items(items), data_root, tuple(kind) if kind else DEFAULT_LOG_TYPES)
            )
        )


def _files_not_on_master(items: list[str], data_root: Path, kinds: tuple[str, ...]) -> dict[str, int]:
    root = os.fsencode(os.path.realpath(data_root))
    scanner = Scanner(root, ScanScope(host="", kinds=kinds))
    found = {"replicated": False, "files": 0, "bytes": 0, "pruned": 0}
    try:
        with closing(connect_readonly(ledger_path(find_places().state), STEPS)) as db:
            roots = (root, os.fsencode(os.path.abspath(data_root)))  # `replicate add` keeps links
            numbers = [row[0] for row in db.execute("SELECT id FROM databases WHERE root IN (?, ?)", roots)]
            found["replicated"] = bool(numbers)
            for item in items if numbers else ():
                for folder in [*scanner.item(item), *scanner.archives(item)]:
                    there = _on_a_master(db, numbers, folder.path)
                    for name, local in folder.files.items():
                        if there.get(name) != (local.size, local.mtime_ns):
                            found["files"] += 1
                            found["bytes"] += local.size
                    found["pruned"] += len(pruned_files(os.fsdecode(os.path.join(root, folder.path))))
    except sqlite3.Error as error:
        raise RlaError(f"the ledger cannot be read: {error}") from None
    found["files"] += len(scanner.unread)  # at least; the number is unknown
    return found


def _on_a_master(db: sqlite3.Connection, numbers: list[int], folder: bytes) -> dict[bytes, tuple[int, int]]:
    """Name → (size, mtime_ns) of a folder's files that are wholly on some master."""
    marks = ", ".join("?" * len(numbers))
    rows = db.execute(
        "SELECT f.name, f.size, f.mtime_ns FROM folders d JOIN files f ON f.folder = d.id "  # noqa: S608 - places only
        f"WHERE d.path = ? AND d.db IN ({marks}) AND f.state IN (0, {PRUNED}) AND f.acked = f.size",
        (folder, *numbers),
    )
    return {row[0]: (row[1], row[2]) for row in rows}
