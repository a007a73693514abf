"""`rla du`, `fsck`, `trash`: what a database takes, what is wrong with it, what can come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.options import (
    CHANGE,
    CHECK,
    AsCsv,
    AsJson,
    DataRoot,
    Selection,
    TableOption,
    Yes,
    agree,
    open_database,
    print_done,
    print_rows,
    say,
    say_aside,
    say_waiting,
    takes_runs,
    teller,
)
from rla_client.contract.user_messages import examples

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rla_client.database.runs import Database
    from rla_client.database.upkeep import Fault


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel=CHECK, epilog=examples("rla du", "rla du --table cartpole --json"))(du)
    app.command(rich_help_panel=CHECK, epilog=examples("rla fsck", "rla fsck --fix --only orphan"))(fsck)
    bin_app = typer.Typer(help="The trash: list (default), restore, empty.", invoke_without_command=True)
    bin_app.callback()(trash)
    bin_app.command("list", epilog=examples("rla trash list", "rla trash list --json"))(list_)
    bin_app.command(
        "restore", epilog=examples("rla trash restore 09-30-01", "rla trash restore 'lr=0.1&seed=3'")
    )(restore)
    bin_app.command("empty", epilog=examples("rla trash empty", "rla trash empty --yes"))(empty)
    whole = examples("rla trash", "rla trash restore 09-30-01")
    app.add_typer(bin_app, name="trash", rich_help_panel=CHANGE, epilog=whole)


def trash(
    context: typer.Context, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """List what can be restored."""
    if context.invoked_subcommand is None:
        list_(data_root, as_json, as_csv)


def list_(data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List what can be restored."""
    from rla_client.database.changes import TRASH_DAYS
    from rla_client.database.text import bytes_text, table_text
    from rla_client.database.upkeep import trashed

    found = trashed(open_database(data_root).data_root)
    machine = as_json or as_csv
    rows: list[list[object]] = []
    for one in found:
        until = time.strftime("%Y-%m-%d", time.localtime(one.entry.created + TRASH_DAYS * 86400))
        size: object = one.entry.bytes if machine else bytes_text(one.entry.bytes)
        tables = " ".join(dict.fromkeys(table for table, _ in one.runs))
        if machine:
            first = one.entry.moves[0][0] if one.entry.moves else None
            rows.append([one.title, one.entry.name, len(one.entry.moves), size, until, tables, first])
        else:
            rows.append([one.title, one.entry.name, size, until, one.what, tables])
    if machine:
        names = ["run", "entry", "paths", "size", "kept until", "table", "first"]
        print_rows(names, rows, as_json=as_json, as_csv=as_csv)
    elif rows:
        say(table_text(["run", "entry", "size", "kept until", "what", "table"], rows))
    else:
        say("the trash is empty")


def restore(
    entry: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_ENTRY", help="A run in the trash (a unique part of its name), or a whole entry."
        ),
    ],
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Move a run, or a whole entry, back to where it was."""
    from rla_client.database.changes import changing
    from rla_client.database.records import clock
    from rla_client.database.upkeep import restore as restore_one

    root = open_database(data_root).data_root
    with changing(root, clock(), say_waiting):
        count = restore_one(root, entry)
    print_done({"paths": count}, f"restored {count} path(s)", as_json=as_json)


def empty(yes: Yes = False, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Delete everything in the trash for good."""
    from rla_client.database.changes import changing, empty_trash, trash_entries
    from rla_client.database.records import clock
    from rla_client.database.text import bytes_text

    root = open_database(data_root).data_root
    entries = trash_entries(root)
    if not entries:
        print_done({"entries": 0, "size": 0}, "the trash is empty", as_json=as_json)
        return
    teller(as_json=as_json)(f"{len(entries)} entries, {bytes_text(sum(entry.bytes for entry in entries))}")
    if not agree("Delete them for good?", yes):
        raise typer.Exit(1)
    with changing(root, clock(), say_waiting):
        freed = empty_trash(root, clock())
    print_done({"entries": len(entries), "size": freed}, f"freed {bytes_text(freed)}", as_json=as_json)


@takes_runs()
def du(
    *, chosen: Selection, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """Show disk use by table and kind, with archive and trash; pruned files are counted separately.

    Of chosen runs alone where RUN or an option says which.
    """
    from rla_client.database.text import bytes_text
    from rla_client.database.upkeep import disk_use

    database = open_database(data_root)
    rows = disk_use(database.data_root, _with_chains(database, chosen) if chosen.given else None)
    names = ["table", "kind", "items", "size", "on the master alone"]
    if not (as_json or as_csv):
        empty = sum(not (row[3] or row[4]) for row in rows)
        rows = [row for row in rows if row[3] or row[4]]
        total = ("total", "", "", sum(row[3] for row in rows), sum(row[4] for row in rows))
        shown = [
            [*row[:3], bytes_text(row[3]), bytes_text(row[4]) if row[4] else ""] for row in (*rows, total)
        ]
        shown = shown if total[4] else [row[:4] for row in shown]
        print_rows(names[: len(shown[0])], shown, as_json=False, as_csv=False)
        if empty:
            say_aside(f"({empty} more without a byte; --json has all)")
        return
    print_rows(names, rows, as_json=as_json, as_csv=as_csv)


def _with_chains(database: Database, chosen: Selection) -> set[tuple[str, str]]:
    """The chosen runs, each with those that it continues."""
    runs = {(one.table, one.index) for one in chosen.records(database)}
    links = database.links()
    earlier = runs
    while earlier := {(run[0], links[run]) for run in earlier if run in links} - runs:
        runs |= earlier
    return runs


def fsck(
    fix: Annotated[bool, typer.Option("--fix", help="Repair what can be repaired.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            help="Only these faults, e.g. torn-row,stray; orphan and stray only if named here.",
            show_default=False,
        ),
    ] = None,
    table: TableOption = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Find torn, missing, orphan and inconsistent items."""
    from rla_client.database.changes import changing
    from rla_client.database.records import clock
    from rla_client.database.upkeep import ON_REQUEST, find_faults, repair

    named = {kind.strip() for kind in only.split(",")} if only is not None else None
    root = open_database(data_root).data_root
    faults = [fault for fault in find_faults(root, clock(), table) if named is None or fault.kind in named]
    repairable = [f for f in faults if f.repairable and (named is not None or f.kind not in ON_REQUEST)]
    if as_json or as_csv or faults:
        rows = [[fault.kind, _how_to_fix(fault), fault.where, fault.text] for fault in faults]
        print_rows(["fault", "repaired by", "where", "what"], rows, as_json=as_json, as_csv=as_csv)
    if not faults:
        if not (as_json or as_csv):
            say("no faults")
        return
    left = _left_text(faults, repairable)
    if not fix:
        only_text = f" --only {only}" if only is not None else ""
        say_aside(f"{len(faults)} fault(s); `rla fsck --fix{only_text}` repairs {len(repairable)}{left}")
        raise typer.Exit(1)
    if repairable:
        if not agree(f"Repair {len(repairable)} fault(s)?", yes):
            raise typer.Exit(1)
        with changing(root, clock(), say_waiting):
            for fault in repairable:
                repair(root, fault, clock())
    say_aside(f"repaired {len(repairable)} of {len(faults)} fault(s){left}")
    raise typer.Exit(0 if len(repairable) == len(faults) else 1)


def _left_text(faults: Sequence[Fault], repairable: Sequence[Fault]) -> str:
    """What a repair would leave, and what to do with it."""
    asked = [fault.kind for fault in faults if fault.repairable and fault not in repairable]
    by_hand = sum(not fault.repairable for fault in faults)
    text = f"; {len(asked)} only by `rla fsck --fix --only {','.join(sorted(set(asked)))}`" if asked else ""
    return text + (f"; {by_hand} by hand" if by_hand else "")


def _how_to_fix(fault: Fault) -> str:
    from rla_client.database.upkeep import ON_REQUEST

    if not fault.repairable:
        return "hand"
    return f"--fix --only {fault.kind}" if fault.kind in ON_REQUEST else "--fix"
