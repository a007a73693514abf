"""`rla-agent transfer remove | allow | lacks | trash | fetch`: deleting on the master, fetching from it.

`rla rm` calls `remove` and `lacks`. The first three read the runs (`table/YYYY/MM/DD/name`) from the
command line, or with `-` from stdin: one a line, or, for names with line breaks in them, with a NUL after
each.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import typer

from rla_agent.replicate import settings
from rla_agent.replicate.ledger import PRUNED, STEPS, ledger_path
from rla_agent.replicate.pull.fetch_back import fetch_back
from rla_agent.replicate.report import shown_target, size_text
from rla_agent.replicate.retain import master_trash
from rla_agent.replicate.worker.source import Scanner, Scope
from rla_agent.store.sqlite import connect_readonly
from rla_client.config.schema import load_config
from rla_client.contract.checkpoints import pruned_files
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.paths import find_places, user_name
from rla_client.contract.textformat import printable
from rla_client.contract.user_messages import examples

DAY_S: Final = 86400.0
ConfigOption = Annotated[Path, typer.Option("--config", help="the project's rla_config.yaml")]
RootOption = Annotated[Path, typer.Option("--data-root", help="the local data root")]
ItemsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="table/YYYY/MM/DD/name; - reads stdin")
]
KindOption = Annotated[list[str] | None, typer.Option("--kind", help="data kind; may be given several times")]


def register(app: typer.Typer) -> None:
    """Add the commands to `rla-agent transfer`."""
    app.command(
        "remove",
        epilog=examples(
            "rla-agent transfer remove --config rla_config.yaml --data-root data RUN", "rla rm --master @last"
        ),
    )(remove)
    app.command(
        "allow",
        epilog=examples(
            "rla-agent transfer allow --config rla_config.yaml RUN",
            "rla-agent transfer allow --config rla_config.yaml - < runs.txt",
        ),
    )(allow)
    app.command(
        "lacks",
        epilog=examples(
            "rla-agent transfer lacks --data-root data RUN",
            "rla-agent transfer lacks --data-root data --kind checkpoint RUN",
        ),
    )(lacks)
    app.command(
        "trash",
        epilog=examples(
            "rla-agent transfer trash --config rla_config.yaml",
            "rla-agent transfer trash --config rla_config.yaml --restore ENTRY",
        ),
    )(trash)
    app.command(
        "fetch",
        epilog=examples(
            "rla-agent transfer fetch data/checkpoint/cartpole",
            "rla-agent transfer fetch model.pt --config rla_config.yaml",
        ),
    )(fetch)


def _fail(error: RlaError | OSError) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    hint = getattr(error, "hint", "")
    if hint:
        typer.echo(f"  → {hint}", err=True)
    return typer.Exit(2)


def _items(given: list[str]) -> list[str]:
    words = given
    if given == ["-"]:
        data = sys.stdin.buffer.read()
        words = [os.fsdecode(word) for word in data.split(b"\0" if b"\0" in data else b"\n")]
    return [master_trash.check_item(word) for word in words if word]


def remove(
    items: ItemsArgument, config: ConfigOption, data_root: RootOption, kind: KindOption = None
) -> None:
    """Move runs to the master's trash; tombstones there keep machines from sending them again."""
    state = find_places().state
    kinds = tuple(kind) if kind else DEFAULT_LOG_TYPES
    try:
        chosen = _items(items)
        target = settings.target(load_config(config), settings.folder(state))
        there = shown_target(target.name)
        session = target.open()
        try:
            about = {"host": socket.gethostname(), "user": user_name() or str(os.getuid())}
            entry = master_trash.move_to_trash(session, chosen, kinds, about, time.time())
        finally:
            session.close()
        master_trash.bury_here(state, str(data_root), target.name, master_trash.subjects_of(chosen, kinds))
    except (RlaError, OSError) as error:
        raise _fail(error) from None
    if entry.moves:
        typer.echo(f"moved {len(entry.moves)} item(s) to the trash of {there} as {entry.name}")
        typer.echo(f"undo there: rla-agent transfer trash --config {config} --restore {entry.name}")
    else:
        typer.echo(f"{there} had nothing of these runs; nobody will send them there from now on")
        named = shlex.quote(chosen[0]) if len(chosen) == 1 else "RUN..."
        typer.echo(f"undo there: rla-agent transfer allow --config {config} {named}")


def allow(items: ItemsArgument, config: ConfigOption, kind: KindOption = None) -> None:
    """Allow removed runs to be sent to the master again; its trash stays as it is."""
    state = find_places().state
    try:
        subjects = master_trash.subjects_of(_items(items), tuple(kind) if kind else DEFAULT_LOG_TYPES)
        target = settings.target(load_config(config), settings.folder(state))
        there = shown_target(target.name)
        session = target.open()
        try:
            count = master_trash.drop_tombstones(session, subjects)
        finally:
            session.close()
        settings.ask_retry(state)
    except (RlaError, OSError) as error:
        raise _fail(error) from None
    if count:
        typer.echo(f"took {count} tombstone(s) off {there}; these runs are sent there again")
        typer.echo("on other machines that hold them: rla-agent replicate retry")
    else:
        typer.echo(f"{there} has no tombstone of these runs; nothing keeps them from being sent there")


def lacks(items: ItemsArgument, data_root: RootOption, kind: KindOption = None) -> None:
    """Print as JSON what no master has yet of these runs (files, bytes) and how many are pruned."""
    try:
        chosen = _items(items)
        root = os.fsencode(os.path.realpath(data_root))
        scanner = Scanner(root, Scope(host="", kinds=tuple(kind) if kind else DEFAULT_LOG_TYPES))
        found = {"replicated": False, "files": 0, "bytes": 0, "pruned": 0}
        with closing(connect_readonly(ledger_path(find_places().state), STEPS)) as db:
            roots = (root, os.fsencode(os.path.abspath(data_root)))  # `replicate add` keeps links
            numbers = [row[0] for row in db.execute("SELECT id FROM databases WHERE root IN (?, ?)", roots)]
            found["replicated"] = bool(numbers)
            for item in chosen if numbers else ():
                for folder in [*scanner.item(item), *scanner.archives(item)]:
                    there = _on_a_master(db, numbers, folder.path)
                    for name, local in folder.files.items():
                        if there.get(name) != (local.size, local.mtime_ns):
                            found["files"] += 1
                            found["bytes"] += local.size
                    found["pruned"] += len(pruned_files(os.fsdecode(os.path.join(root, folder.path))))
        found["files"] += len(scanner.unread)  # at least; nobody can tell
    except sqlite3.Error as error:
        raise _fail(RlaError(f"the ledger cannot be read: {error}")) from None
    except (RlaError, OSError) as error:
        raise _fail(error) from None
    typer.echo(json.dumps(found))


def _on_a_master(db: sqlite3.Connection, numbers: list[int], folder: bytes) -> dict[bytes, tuple[int, int]]:
    """Name → (size, mtime_ns) of a folder's files that are wholly on some master."""
    marks = ", ".join("?" * len(numbers))
    rows = db.execute(
        "SELECT f.name, f.size, f.mtime_ns FROM folders d JOIN files f ON f.folder = d.id "  # noqa: S608 - places only
        f"WHERE d.path = ? AND d.db IN ({marks}) AND f.state IN (0, {PRUNED}) AND f.acked = f.size",
        (folder, *numbers),
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def trash(
    config: ConfigOption,
    *,
    restore: Annotated[str, typer.Option(help="move this entry back, and let it be sent again")] = "",
    empty: Annotated[bool, typer.Option("--empty", help="delete its content for good")] = False,
    older_than_days: Annotated[
        float, typer.Option(min=0, help="with --empty: only entries at least this old")
    ] = 0.0,
) -> None:
    """The master's trash: list (default), restore an entry, empty it."""
    if restore and empty:
        raise _fail(ArgumentError("choose one of --restore and --empty"))
    try:
        target = settings.target(load_config(config), settings.folder(find_places().state))
        there = shown_target(target.name)
        session = target.open()
        try:
            if restore:
                entry = master_trash.restore(session, restore)
                typer.echo(f"restored {len(entry.moves)} item(s) on {there}")
                settings.ask_retry(find_places().state)
            elif empty:
                count = master_trash.empty(session, older_than_days * DAY_S, time.time())
                typer.echo(f"deleted {count} entry(ies) from the trash of {there}")
            else:
                for entry in master_trash.entries(session):
                    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.created))
                    first = printable(os.fsdecode(entry.moves[0][0])) if entry.moves else ""
                    typer.echo(f"{entry.name}  {when}  {len(entry.moves)} item(s)  {first}")
        finally:
            session.close()
    except (RlaError, OSError) as error:
        raise _fail(error) from None


def fetch(
    paths: Annotated[list[Path], typer.Argument(help="pruned files, or folders that contain some")],
    config: Annotated[Path | None, typer.Option("--config", help="rla_config.yaml of the project")] = None,
) -> None:
    """Bring pruned files back from the master."""
    state = find_places().state
    count = size = 0
    try:
        for folder, name in [one for path in paths for one in _pruned(path)]:
            size += fetch_back(state, folder, name, None if config is None else str(config))
            count += 1
    except (RlaError, OSError) as error:
        raise _fail(error) from None
    typer.echo(f"fetched {count} file(s), {size_text(size)}")


def _pruned(path: Path) -> list[tuple[str, str]]:
    if not path.is_dir():
        return [(str(path.absolute().parent), path.name)]
    return [(here, note.name) for here, _, _ in os.walk(path.absolute()) for note in pruned_files(here)]
