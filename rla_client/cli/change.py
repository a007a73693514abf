"""`rla tag`, `note`, `rm`, `archive`, `migrate`: changing runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.completion import complete_run
from rla_client.cli.options import (
    CHANGE,
    AsJson,
    DataRoot,
    Selection,
    Yes,
    agree,
    named_runs,
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
    from collections.abc import Callable, Sequence

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
        "--small",
        help="Only runs that have no rows or whose last time-step is at most this.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        rich_help_panel=CHANGE, epilog=examples("rla tag @last best", "rla tag --where 'lr == 0.1' baseline")
    )(tag)
    app.command(
        rich_help_panel=CHANGE,
        epilog=examples("rla note @last", "rla note @last 'first run with the new reward'"),
    )(note)
    app.command(
        rich_help_panel=CHANGE, epilog=examples("rla rm --state failed --since 7d", "rla rm @last --yes")
    )(rm)
    app.command(
        rich_help_panel=CHANGE,
        epilog=examples("rla archive @last", "rla archive --tag best --kinds log,checkpoint"),
    )(archive)
    app.command(
        rich_help_panel=CHANGE,
        epilog=examples("rla migrate baselines --tag best", "rla migrate old --table cartpole --since 7d"),
    )(migrate)


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
    from rla_client.contract.errors import ArgumentError
    from rla_client.database.changes import changing
    from rla_client.database.records import clock
    from rla_client.database.side_files import change_note

    database = open_database(data_root)
    records, tags = _run_first(database, chosen, words)
    if not tags:
        message = "no tag is given\nhint: rla tag RUN TAG..."
        raise ArgumentError(message)
    found = []
    with changing(database.data_root, clock(), say_waiting):
        for record in records:
            content = change_note(
                database.data_root, record, add=[] if remove else tags, remove=tags if remove else []
            )
            listed = content["tags"]
            texts = list(map(str, listed)) if isinstance(listed, list) else []
            found.append(texts)
            if not as_json:
                say(f"{record.date}: {' '.join(texts) or 'no tags'}")
    if as_json:
        rows = [[record.index, record.table, texts] for record, texts in zip(records, found, strict=True)]
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
    from rla_client.contract.errors import ArgumentError
    from rla_client.database.changes import changing
    from rla_client.database.records import clock
    from rla_client.database.side_files import change_note

    database = open_database(data_root)
    records, texts = _run_first(database, chosen, words or [])
    if len(texts) > 1:
        message = "a note is one text\nhint: put it in quotes"
        raise ArgumentError(message)
    if texts:
        with changing(database.data_root, clock(), say_waiting):
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
    from rla_client.contract.errors import ArgumentError

    several = bool(chosen.fitting or chosen.where or chosen.since)
    if not several and not words:
        message = "say which run: RUN, --run, --tag, --state, --where, --since"
        raise ArgumentError(message)
    if not several:
        chosen, words = replace(chosen, named=(words[0],)), words[1:]
    records = chosen.records(database, one_each=True)
    if not records:
        message = "no run matches"
        raise ArgumentError(message)
    return records, words


def _choose(database: Database, chosen: Selection, small: float | None = None) -> list[Record]:
    from rla_client.contract.errors import ArgumentError

    if not chosen.given and small is None:
        message = "say which runs: RUN…, --run, --tag, --state, --where, --since, --table"
        raise ArgumentError(message)
    found = chosen.records(database, one_each=True)
    if small is not None:
        found = [record for record in found if record.time_step is None or record.time_step <= small]
    return found


def _items(database: Database, records: Sequence[Record], kinds: str | None) -> list[Item]:
    from rla_client.contract.layout import DEFAULT_LOG_TYPES
    from rla_client.contract.user_messages import unknown
    from rla_client.database.tree import run_items

    wanted = set(DEFAULT_LOG_TYPES) if kinds is None else {kind.strip() for kind in kinds.split(",")}
    for kind in sorted(wanted - set(DEFAULT_LOG_TYPES)):
        raise unknown(kind, DEFAULT_LOG_TYPES, f"there is no kind {kind!r}")
    return [
        item
        for record in records
        for item in run_items(database.data_root, record.table, record.index)
        if item.kind in wanted
    ]


def _list(records: Sequence[Record], items: Sequence[Item], tell: Callable[[str], None]) -> int:
    """Show what a command will touch; returns its bytes."""
    from rla_client.database.records import shown_name
    from rla_client.database.text import bytes_text, clean, cut, width
    from rla_client.database.tree import item_bytes

    for record in records[:SHOWN]:
        tell(cut(clean(f"  {shown_name(record.table, record.index)}"), width()))
    if len(records) > SHOWN:
        tell(f"  … and {len(records) - SHOWN} more")
    total = sum(item_bytes(item)[0] for item in items)
    tell(f"{len(records)} run(s), {len(items)} item(s), {bytes_text(total)}")
    return total


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
    from rla_client.database.changes import TRASH_DAYS, changing, move_to_trash, refuse_live
    from rla_client.database.records import clock
    from rla_client.database.text import bytes_text

    database = open_database(data_root)
    records = _choose(database, chosen, small)
    items = _items(database, records, kinds)
    if not items:
        facts: dict[str, object] = {"runs": [], "items": 0, "size": 0, "entry": None}
        print_done(facts, "nothing to remove: no run matches", as_json=as_json)
        return
    refuse_live(database.data_root, items, clock())
    total = _list(records, items, teller(as_json=as_json))
    _say_about_master(database.data_root, items, teller(as_json=as_json), master=master)
    if not agree("Move them to the trash" + (" here and on the master?" if master else "?"), yes):
        raise typer.Exit(1)
    if master:
        from rla_client.database.changes import remove_on_master

        remove_on_master(database.data_root, items, config)
    with changing(database.data_root, clock(), say_waiting):
        name = move_to_trash(database.data_root, items, clock())
    kept = f"Kept for {TRASH_DAYS:.0f} days at least; delete now: rla trash empty"
    told = (
        f"moved {len(items)} item(s) to the trash as {name}\nMoved to trash ({bytes_text(total)}). {kept}\n"
        f"to undo: rla trash restore {name}"
    )
    facts = {"runs": named_runs(records), "items": len(items), "size": total, "entry": name}
    print_done(facts, told, as_json=as_json)


def _say_about_master(
    data_root: Path, items: Sequence[Item], tell: Callable[[str], None], *, master: bool
) -> None:
    """Warn about what would be left in the trash alone."""
    from rla_client.database.changes import lacking
    from rla_client.database.text import bytes_text

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
    from rla_client.contract.layout import ARCHIVED_TABLE

    database = open_database(data_root)
    records = _choose(database, chosen)
    how = (ARCHIVED_TABLE + "/{kind}/{table}", "arc/", yes)
    _copy(database, records, _items(database, records, kinds), how, as_json=as_json)


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
    from rla_client.contract.layout import check_table_name

    database = open_database(data_root)
    escaped = check_table_name(target).replace("{", "{{").replace("}", "}}")
    records = _choose(database, chosen)
    how = ("{kind}/" + escaped, f"table {target}", yes)
    _copy(database, records, _items(database, records, kinds), how, as_json=as_json)


def _copy(
    database: Database,
    records: Sequence[Record],
    items: Sequence[Item],
    how: tuple[str, str, bool],
    *,
    as_json: bool,
) -> None:
    from rla_client.database.changes import changing, copy_items, refuse_live
    from rla_client.database.records import clock

    pattern, place, yes = how
    if not items:
        facts: dict[str, object] = {"runs": [], "items": 0, "already_there": 0, "to": place}
        print_done(facts, "nothing to copy: no run matches", as_json=as_json)
        return
    refuse_live(database.data_root, items, clock())
    _list(records, items, teller(as_json=as_json))
    if not agree(f"Copy them to {place}?", yes):
        raise typer.Exit(1)
    copied = 0
    with changing(database.data_root, clock(), say_waiting):
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
    facts = {"runs": named_runs(records), "items": copied, "already_there": there, "to": place}
    print_done(facts, told, as_json=as_json)
