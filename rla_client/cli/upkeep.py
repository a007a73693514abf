"""`rla tag`, `note`, `rm`, `archive`, `migrate`, `trash`, `du`, `fsck`: keeping a database in order.

What changes a database waits for other commands that do, and asks first where files would move.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
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
    add_command,
    agree,
    complete_run,
    held,
    open_database,
    print_done,
    print_rows,
    say,
    say_aside,
    takes_runs,
    teller,
)
from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import ARCHIVED_TABLE, DEFAULT_LOG_TYPES
from rla_client.contract.safe_names import check_table_name
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.spelling import unknown
from rla_client.database.clock import clock
from rla_client.database.text.numbers import bytes_text
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import cut, table_text, width
from rla_client.database.tree.items import run_items
from rla_client.database.tree.run_names import shown_name
from rla_client.database.tree.sizes import item_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rla_client.database.fsck import Fault
    from rla_client.database.records.record import Record
    from rla_client.database.runs import Database
    from rla_client.database.tree.items import Item

SHOWN = 20  # runs listed before a question; the rest is counted
Kinds = Annotated[str | None, typer.Option("--kinds", help="Only these kinds, e.g. checkpoint,results.")]
Small = Annotated[
    float | None,
    typer.Option("--small", help="Only runs that have no rows or whose last time-step is at most this."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_command(app, tag, CHANGE, "rla tag @last best", "rla tag --where 'lr == 0.1' baseline")
    add_command(app, note, CHANGE, "rla note @last", "rla note @last 'first run with the new reward'")
    add_command(app, rm, CHANGE, "rla rm --state failed --since 7d", "rla rm @last --yes")
    add_command(app, archive, CHANGE, "rla archive @last", "rla archive --tag best --kinds log,checkpoint")
    lines = ("rla migrate baselines --tag best", "rla migrate old --table cartpole --since 7d")
    add_command(app, migrate, CHANGE, *lines)
    add_command(app, du, CHECK, "rla du", "rla du --table cartpole --json")
    add_command(app, fsck, CHECK, "rla fsck", "rla fsck --fix --only orphan")
    bin_app = typer.Typer(help="The trash: list (default), restore, empty.", invoke_without_command=True)
    bin_app.callback()(trash)
    add_command(bin_app, list_, None, "rla trash list", "rla trash list --json", name="list")
    add_command(bin_app, restore, None, "rla trash restore 09-30-01", "rla trash restore 'lr=0.1&seed=3'")
    add_command(bin_app, empty, None, "rla trash empty", "rla trash empty --yes")
    whole = examples("rla trash", "rla trash restore 09-30-01")
    app.add_typer(bin_app, name="trash", rich_help_panel=CHANGE, epilog=whole)


# -- tags and notes ------------------------------------------------------------------------------


@takes_runs(argument=False)
def tag(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN TAG...",
            help="A run, then tags without spaces; only tags if --run or a filter selects the runs.",
            autocompletion=complete_run,
        ),
    ],
    *,
    chosen: Selection,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tags instead.")] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Add tags to runs, or remove them."""
    from rla_client.database.records.notes import change_note

    database = open_database(data_root)
    records, tags = _run_first(database, chosen, words)
    if not tags:
        raise ArgumentError("no tag is given\nhint: rla tag RUN TAG...")
    add, away = ([], tags) if remove else (tags, [])
    rows = []
    with held(database.data_root):
        for record in records:
            listed = change_note(database.data_root, record, add=add, remove=away)["tags"]
            texts = list(map(str, listed)) if isinstance(listed, list) else []
            rows.append([record.index, record.table, texts])
            if not as_json:
                say(f"{record.date}: {' '.join(texts) or 'no tags'}")
    if as_json:
        print_rows(["run", "table", "tags"], rows, as_json=True, as_csv=False)


@takes_runs(argument=False)
def note(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN [TEXT]",
            help="A run and its new note; without a note, the present one is printed.",
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    chosen: Selection,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Print or set the note of runs."""
    from rla_client.database.records.notes import change_note

    database = open_database(data_root)
    records, texts = _run_first(database, chosen, words or [])
    if len(texts) > 1:
        raise ArgumentError("a note is one text\nhint: put it in quotes")
    if texts:
        with held(database.data_root):
            for record in records:
                change_note(database.data_root, record, note=texts[0])
                if not as_json:
                    say(f"{record.date}: noted")
    if as_json:
        rows = [[record.index, record.table, texts[0] if texts else record.note] for record in records]
        print_rows(["run", "table", "note"], rows, as_json=True, as_csv=False)
    elif not texts:
        for record in records:
            say(
                f"{record.date}: {record.note}"
                if len(records) > 1 and record.note
                else record.note or f"{record.date} has no note"
            )


def _run_first(database: Database, chosen: Selection, words: list[str]) -> tuple[list[Record], list[str]]:
    """The runs, and the words that are not among them: without options the first word is the run."""
    several = bool(chosen.fitting or chosen.where or chosen.since)
    if not several and not words:
        raise ArgumentError("say which run: RUN, --run, --tag, --state, --where, --since")
    if not several:
        chosen, words = replace(chosen, named=(words[0],)), words[1:]
    return chosen.some(database, one_each=True), words


# -- runs moved and copied -----------------------------------------------------------------------


@takes_runs()
def rm(
    *,
    chosen: Selection,
    small: Small = None,
    kinds: Kinds = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    master: Annotated[
        bool,
        typer.Option(
            "--master", help="Also on the master: move them to its trash and never send them again."
        ),
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="With --master: the rla_config.yaml that names it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Move runs to the trash; they can be restored for at least 7 days."""
    from rla_client.database.changes.live_runs import refuse_live
    from rla_client.database.changes.trash import TRASH_DAYS, move_to_trash

    database = open_database(data_root)
    records, items = _chosen_items(database, chosen, kinds, small)
    if not items:
        facts: dict[str, object] = {"runs": [], "items": 0, "size": 0, "entry": None}
        print_done(facts, "nothing to remove: no run matches", as_json=as_json)
        return
    refuse_live(database.data_root, items, clock())
    total = _list(records, items, teller(as_json=as_json))
    _say_about_master(database.data_root, items, teller(as_json=as_json), master=master)
    agree("Move them to the trash" + (" here and on the master?" if master else "?"), yes)
    if master:
        from rla_client.database.changes.master_trash import remove_on_master

        remove_on_master(database.data_root, items, config)
    with held(database.data_root):
        name = move_to_trash(database.data_root, items, clock())
    kept = f"Kept for {TRASH_DAYS:.0f} days at least; delete now: rla trash empty"
    told = (
        f"moved {len(items)} item(s) to the trash as {name}\nMoved to trash ({bytes_text(total)}). {kept}\n"
        f"to undo: rla trash restore {name}"
    )
    facts = {"runs": _named(records), "items": len(items), "size": total, "entry": name}
    print_done(facts, told, as_json=as_json)


def _chosen_items(
    database: Database, chosen: Selection, kinds: str | None, small: float | None = None
) -> tuple[list[Record], list[Item]]:
    """The runs that were asked for, and their items of some kinds."""
    if not chosen.given and small is None:
        raise ArgumentError("say which runs: RUN…, --run, --tag, --state, --where, --since, --table")
    records = chosen.records(database, one_each=True)
    if small is not None:
        records = [record for record in records if record.time_step is None or record.time_step <= small]
    wanted = set(DEFAULT_LOG_TYPES) if kinds is None else {kind.strip() for kind in kinds.split(",")}
    for kind in sorted(wanted - set(DEFAULT_LOG_TYPES)):
        raise unknown(kind, DEFAULT_LOG_TYPES, f"there is no kind {kind!r}")
    items = [
        item
        for record in records
        for item in run_items(database.data_root, record.table, record.index)
        if item.kind in wanted
    ]
    return records, items


def _named(records: Sequence[Record]) -> list[dict[str, object]]:
    """Runs as JSON names them."""
    return [{"run": record.index, "table": record.table} for record in records]


def _list(records: Sequence[Record], items: Sequence[Item], tell: Callable[[str], None]) -> int:
    """Show what a command will touch; returns its bytes."""
    for record in records[:SHOWN]:
        tell(cut(clean(f"  {shown_name(record.table, record.index)}"), width()))
    if len(records) > SHOWN:
        tell(f"  … and {len(records) - SHOWN} more")
    total = sum(item_bytes(item)[0] for item in items)
    tell(f"{len(records)} run(s), {len(items)} item(s), {bytes_text(total)}")
    return total


def _say_about_master(
    data_root: Path, items: Sequence[Item], tell: Callable[[str], None], *, master: bool
) -> None:
    """Warn about what would be left in the trash alone."""
    from rla_client.database.changes.master_trash import lacking

    found = lacking(data_root, items)
    if found is None:
        return
    if found["files"]:
        size = bytes_text(found["bytes"])
        say_aside(f"warning: the master lacks {found['files']} of these files ({size}): not replicated yet")
    if master and found["pruned"]:
        say_aside(
            f"warning: {found['pruned']} of these files were pruned here: the master's are the only ones"
        )
    if not master:
        tell("the master keeps its copy; --master removes it there too")


@takes_runs()
def archive(
    *,
    chosen: Selection,
    kinds: Kinds = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs to the archive, arc/ in the database."""
    database = open_database(data_root)
    _copy(database, chosen, kinds, ARCHIVED_TABLE + "/{kind}/{table}", "arc/", yes=yes, as_json=as_json)


@takes_runs()
def migrate(
    target: Annotated[str, typer.Argument(metavar="TO_TABLE", help="The table that gets the copies.")],
    *,
    chosen: Selection,
    kinds: Kinds = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Copy runs to another table of the database."""
    database = open_database(data_root)
    escaped = check_table_name(target).replace("{", "{{").replace("}", "}}")
    _copy(database, chosen, kinds, "{kind}/" + escaped, f"table {target}", yes=yes, as_json=as_json)


def _copy(
    database: Database,
    chosen: Selection,
    kinds: str | None,
    pattern: str,
    place: str,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Copy items to where a pattern says, which the user knows as `place`."""
    from rla_client.database.changes.copies import copy_items
    from rla_client.database.changes.live_runs import refuse_live

    records, items = _chosen_items(database, chosen, kinds)
    if not items:
        facts: dict[str, object] = {"runs": [], "items": 0, "already_there": 0, "to": place}
        print_done(facts, "nothing to copy: no run matches", as_json=as_json)
        return
    refuse_live(database.data_root, items, clock())
    _list(records, items, teller(as_json=as_json))
    agree(f"Copy them to {place}?", yes)
    copied = 0
    with held(database.data_root):
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
    told = f"copied {copied} item(s) to {place}" + (f"; {there} already there" if there else "")
    facts = {"runs": _named(records), "items": copied, "already_there": there, "to": place}
    print_done(facts, told, as_json=as_json)


# -- the trash -----------------------------------------------------------------------------------


def trash(
    context: typer.Context, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """List what can be restored."""
    if context.invoked_subcommand is None:
        list_(data_root, as_json, as_csv)


def list_(data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List what can be restored."""
    from rla_client.database.changes.trash import TRASH_DAYS
    from rla_client.database.changes.trashed_runs import trashed

    found = trashed(open_database(data_root).data_root)
    machine = as_json or as_csv
    rows: list[list[object]] = []
    for one in found:
        entry, moves = one.entry, one.entry.moves
        until = time.strftime("%Y-%m-%d", time.localtime(entry.created + TRASH_DAYS * 86400))
        tables = " ".join(dict.fromkeys(table for table, _ in one.runs))
        if machine:
            first = moves[0][0] if moves else None
            rows.append([one.title, entry.name, len(moves), entry.bytes, until, tables, first])
        else:
            rows.append([one.title, entry.name, bytes_text(entry.bytes), until, one.what, tables])
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
    from rla_client.database.changes.trashed_runs import restore as restore_one

    root = open_database(data_root).data_root
    with held(root):
        count = restore_one(root, entry)
    print_done({"paths": count}, f"restored {count} path(s)", as_json=as_json)


def empty(yes: Yes = False, data_root: DataRoot = None, as_json: AsJson = False) -> None:
    """Delete everything in the trash for good."""
    from rla_client.database.changes.trash import empty_trash, trash_entries

    root = open_database(data_root).data_root
    entries = trash_entries(root)
    if not entries:
        print_done({"entries": 0, "size": 0}, "the trash is empty", as_json=as_json)
        return
    teller(as_json=as_json)(f"{len(entries)} entries, {bytes_text(sum(entry.bytes for entry in entries))}")
    agree("Delete them for good?", yes)
    with held(root):
        freed = empty_trash(root, clock())
    print_done({"entries": len(entries), "size": freed}, f"freed {bytes_text(freed)}", as_json=as_json)


# -- sizes and faults ----------------------------------------------------------------------------


@takes_runs()
def du(
    *, chosen: Selection, data_root: DataRoot = None, as_json: AsJson = False, as_csv: AsCsv = False
) -> None:
    """Show disk use by table and kind, with archive and trash; pruned files are counted separately.

    Of chosen runs alone where RUN or an option says which.
    """
    from rla_client.database.disk_use import disk_use

    database = open_database(data_root)
    rows = disk_use(database.data_root, _with_chains(database, chosen) if chosen.given else None)
    names = ["table", "kind", "items", "size", "on the master alone"]
    if not (as_json or as_csv):
        every = len(rows)
        rows = [row for row in rows if row[3] or row[4]]
        total = ("total", "", "", sum(row[3] for row in rows), sum(row[4] for row in rows))
        shown = [
            [*row[:3], bytes_text(row[3]), bytes_text(row[4]) if row[4] else ""] for row in (*rows, total)
        ]
        shown = shown if total[4] else [row[:4] for row in shown]
        print_rows(names[: len(shown[0])], shown, as_json=False, as_csv=False)
        if every > len(rows):
            say_aside(f"({every - len(rows)} more without a byte; --json has all)")
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
            "--only", help="Only these faults, e.g. torn-row,stray; orphan and stray only if named here."
        ),
    ] = None,
    table: TableOption = None,
    yes: Yes = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Find torn, missing, orphan and inconsistent items."""
    from rla_client.database.fsck import ON_REQUEST, find_faults, repair

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
        agree(f"Repair {len(repairable)} fault(s)?", yes)
        with held(root):
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
    from rla_client.database.fsck import ON_REQUEST

    if not fault.repairable:
        return "hand"
    return f"--fix --only {fault.kind}" if fault.kind in ON_REQUEST else "--fix"
