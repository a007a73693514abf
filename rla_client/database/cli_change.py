"""`rla tag`, `note`, `rm`, `archive`, `migrate`, `trash`, `du`, `fsck`: managing runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.database.cli_options import (
    AsCsv,
    AsJson,
    DataRoot,
    RunArgument,
    RunArguments,
    Since,
    TableOption,
    Where,
    Yes,
    agree,
    choose_records,
    open_database,
    print_rows,
    say,
    say_aside,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rla_client.database.records import Record
    from rla_client.database.runs import Database
    from rla_client.database.tree import Item

SHOWN = 20  # runs listed before a question; the rest is counted
Kinds = Annotated[
    str | None, typer.Option("--kinds", help="Only these kinds, e.g. checkpoint,results.", show_default=False)
]
Small = Annotated[
    float | None,
    typer.Option(
        "--small", help="Only runs whose last time-step is at most this, or without rows.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(tag)
    app.command()(note)
    app.command()(rm)
    app.command()(archive)
    app.command()(migrate)
    app.command()(du)
    app.command()(fsck)
    bin_app = typer.Typer(help="The trash: list (default), restore, empty.", invoke_without_command=True)
    bin_app.callback()(trash)
    bin_app.command("restore")(restore)
    bin_app.command("empty")(empty)
    app.add_typer(bin_app, name="trash")


def _waiting() -> None:
    say_aside("waiting for another rla command that changes this database…")


def tag(
    run: RunArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Tags, without blanks.")],
    remove: Annotated[bool, typer.Option("--remove", "-r", help="Take them away instead.")] = False,
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Add tags to a run (or take them away)."""
    from rla_client.database.changes import changing
    from rla_client.database.notes import change_note
    from rla_client.database.records import clock

    database = open_database(data_root)
    record = database.find(run, table).record
    with changing(database.data_root, clock(), _waiting):
        content = change_note(
            database.data_root, record, add=[] if remove else tags, remove=tags if remove else []
        )
    listed = content["tags"]
    say(f"{record.date}: {' '.join(map(str, listed)) if isinstance(listed, list) and listed else 'no tags'}")


def note(
    run: RunArgument,
    text: Annotated[
        str | None, typer.Argument(help="The note; without, it is printed.", show_default=False)
    ] = None,
    table: TableOption = None,
    data_root: DataRoot = None,
) -> None:
    """Print or set the note of a run."""
    from rla_client.database.changes import changing
    from rla_client.database.notes import change_note
    from rla_client.database.records import clock

    database = open_database(data_root)
    record = database.find(run, table).record
    if text is None:
        say(record.note or f"{record.date} has no note")
        return
    with changing(database.data_root, clock(), _waiting):
        change_note(database.data_root, record, note=text)
    say(f"{record.date}: noted")


def _choose(
    database: Database,
    runs: list[str] | None,
    filters: tuple[str | None, str | None, str | None],
    small: float | None = None,
) -> list[Record]:
    from rla_client.errors import ArgumentError

    table, where, since = filters
    if not runs and table is None and where is None and since is None and small is None:
        message = "say which runs: RUN…, --table, --where, --since"
        raise ArgumentError(message)
    found = choose_records(database, runs, table, where, since)
    if small is not None:
        found = [record for record in found if record.time_step is None or record.time_step <= small]
    return found


def _items(database: Database, records: Sequence[Record], kinds: str | None) -> list[Item]:
    from rla_client.database.tree import run_items
    from rla_client.errors import ArgumentError
    from rla_client.layout import DEFAULT_LOG_TYPES

    wanted = set(DEFAULT_LOG_TYPES) if kinds is None else {kind.strip() for kind in kinds.split(",")}
    if wanted - set(DEFAULT_LOG_TYPES):
        unknown = ", ".join(sorted(wanted - set(DEFAULT_LOG_TYPES)))
        message = f"no kind {unknown}; kinds: {', '.join(DEFAULT_LOG_TYPES)}"
        raise ArgumentError(message)
    return [
        item
        for record in records
        for item in run_items(database.data_root, record.table, record.index)
        if item.kind in wanted
    ]


def _list(records: Sequence[Record], items: Sequence[Item]) -> int:
    """Show what a command will touch; returns its bytes."""
    from rla_client.database.terminal import bytes_text, clean, cut, width
    from rla_client.database.tree import item_bytes

    for record in records[:SHOWN]:
        say(cut(clean(f"  {record.table}/{record.index}"), width()))
    if len(records) > SHOWN:
        say(f"  … and {len(records) - SHOWN} more")
    total = sum(item_bytes(item)[0] for item in items)
    say(f"{len(records)} run(s), {len(items)} item(s), {bytes_text(total)}")
    return total


def rm(
    runs: RunArguments = None,
    where: Where = None,
    since: Since = None,
    small: Small = None,
    kinds: Kinds = None,
    table: TableOption = None,
    yes: Yes = False,
    data_root: DataRoot = None,
) -> None:
    """Move runs to the trash, from where they come back for 7 days."""
    from rla_client.database.changes import TRASH_DAYS, changing, move_to_trash, refuse_live
    from rla_client.database.records import clock
    from rla_client.database.terminal import bytes_text

    database = open_database(data_root)
    records = _choose(database, runs, (table, where, since), small)
    items = _items(database, records, kinds)
    if not items:
        say("nothing to remove: no run fits")
        return
    refuse_live(database.data_root, items, clock())
    total = _list(records, items)
    if not agree("Move them to the trash?", yes):
        raise typer.Exit(1)
    with changing(database.data_root, clock(), _waiting):
        name = move_to_trash(database.data_root, items, clock())
    say(f"moved {len(items)} item(s) to the trash as {name}")
    say(f"freed now: 0 B; {bytes_text(total)} by `rla trash empty`, or in {TRASH_DAYS:.0f} days")
    say(f"undo: rla trash restore {name}")


def archive(
    runs: RunArguments = None,
    where: Where = None,
    since: Since = None,
    kinds: Kinds = None,
    table: TableOption = None,
    yes: Yes = False,
    data_root: DataRoot = None,
) -> None:
    """Copy runs to arc/ of the database."""
    from rla_client.layout import ARCHIVED_TABLE

    database = open_database(data_root)
    records = _choose(database, runs, (table, where, since))
    _copy(
        database, records, _items(database, records, kinds), (ARCHIVED_TABLE + "/{kind}/{table}", "arc/", yes)
    )


def migrate(
    target: Annotated[str, typer.Argument(metavar="TO_TABLE", help="The table that gets the copies.")],
    runs: RunArguments = None,
    where: Where = None,
    since: Since = None,
    kinds: Kinds = None,
    table: TableOption = None,
    yes: Yes = False,
    data_root: DataRoot = None,
) -> None:
    """Copy runs to another table of the database."""
    from rla_client.layout import check_table_name

    database = open_database(data_root)
    escaped = check_table_name(target).replace("{", "{{").replace("}", "}}")
    records = _choose(database, runs, (table, where, since))
    _copy(database, records, _items(database, records, kinds), ("{kind}/" + escaped, f"table {target}", yes))


def _copy(
    database: Database, records: Sequence[Record], items: Sequence[Item], how: tuple[str, str, bool]
) -> None:
    from rla_client.database.changes import changing, copy_items, refuse_live
    from rla_client.database.records import clock

    pattern, place, yes = how
    if not items:
        say("nothing to copy: no run fits")
        return
    refuse_live(database.data_root, items, clock())
    _list(records, items)
    if not agree(f"Copy them to {place}?", yes):
        raise typer.Exit(1)
    copied = 0
    with changing(database.data_root, clock(), _waiting):
        for record in records:
            mine = [item for item in items if (item.table, item.index) == (record.table, record.index)]
            done = copy_items(
                database.data_root,
                mine,
                lambda item: pattern.format(kind=item.kind, table=item.table),
                clock(),
            )
            copied += len(done)
    there = len(items) - copied
    say(f"copied {copied} item(s) to {place}" + (f"; {there} were there already" if there else ""))


def trash(
    context: typer.Context, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """List what can be restored."""
    if context.invoked_subcommand is not None:
        return
    from rla_client.database.changes import TRASH_DAYS, trash_entries
    from rla_client.database.terminal import bytes_text

    entries = trash_entries(open_database(data_root).data_root)
    rows = []
    for entry in entries:
        until = time.strftime("%Y-%m-%d", time.localtime(entry.created + TRASH_DAYS * 86400))
        size: object = entry.bytes if as_json or as_csv else bytes_text(entry.bytes)
        rows.append([entry.name, len(entry.moves), size, until, entry.moves[0][0] if entry.moves else None])
    if rows or as_json or as_csv:
        print_rows(["entry", "paths", "size", "kept until", "first"], rows, as_json=as_json, as_csv=as_csv)
    else:
        say("the trash is empty")


def restore(
    entry: Annotated[str, typer.Argument(help="Entry, as `rla trash` lists it.")], data_root: DataRoot = None
) -> None:
    """Move an entry back to where it was."""
    from rla_client.database.changes import changing, restore_trash
    from rla_client.database.records import clock

    root = open_database(data_root).data_root
    with changing(root, clock(), _waiting):
        count = restore_trash(root, entry)
    say(f"restored {count} path(s)")


def empty(yes: Yes = False, data_root: DataRoot = None) -> None:
    """Delete everything in the trash for good."""
    from rla_client.database.changes import changing, empty_trash, trash_entries
    from rla_client.database.records import clock
    from rla_client.database.terminal import bytes_text

    root = open_database(data_root).data_root
    entries = trash_entries(root)
    if not entries:
        say("the trash is empty")
        return
    say(f"{len(entries)} entries, {bytes_text(sum(entry.bytes for entry in entries))}")
    if not agree("Delete them for good?", yes):
        raise typer.Exit(1)
    with changing(root, clock(), _waiting):
        freed = empty_trash(root, clock())
    say(f"freed {bytes_text(freed)}")


def du(data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """Disk use by table and kind, with archive and trash."""
    from rla_client.database.sizes import disk_use
    from rla_client.database.terminal import bytes_text

    rows = disk_use(open_database(data_root).data_root)
    total = sum(size for _, _, _, size in rows)
    if not (as_json or as_csv):
        shown = [[*row[:3], bytes_text(row[3])] for row in rows]
        print_rows(
            ["table", "kind", "items", "size"],
            [*shown, ["total", "", "", bytes_text(total)]],
            as_json=False,
            as_csv=False,
        )
        return
    print_rows(["table", "kind", "items", "size"], rows, as_json=as_json, as_csv=as_csv)


def fsck(
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended.")] = False,
    table: TableOption = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Find torn, missing, orphan and inconsistent items."""
    from rla_client.database.changes import changing
    from rla_client.database.fsck import find_faults, mend
    from rla_client.database.records import clock

    root = open_database(data_root).data_root
    faults = find_faults(root, clock(), table)
    if as_json or as_csv or faults:
        rows = [[fault.kind, fault.where, fault.text, fault.mendable] for fault in faults]
        print_rows(["fault", "where", "what", "mendable"], rows, as_json=as_json, as_csv=as_csv)
    if not faults:
        if not (as_json or as_csv):
            say("no faults")
        return
    mendable = [fault for fault in faults if fault.mendable]
    if not fix:
        say_aside(f"{len(faults)} fault(s), {len(mendable)} can be mended by --fix")
        raise typer.Exit(1)
    if mendable and agree(f"Mend {len(mendable)} fault(s)?", yes):
        with changing(root, clock(), _waiting):
            for fault in mendable:
                mend(root, fault, clock())
        say_aside(f"mended {len(mendable)}, left {len(faults) - len(mendable)}")
    raise typer.Exit(0 if len(mendable) == len(faults) else 1)
