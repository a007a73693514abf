"""`rla rm`: runs moved to the trash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.chosen_items import Kinds, chosen_items, list_items, names_of
from rla_client.cli.confirmation import agree
from rla_client.cli.open_database import held, open_database
from rla_client.cli.options import AsJson, DataRoot, Yes
from rla_client.cli.output import print_done, say_aside, teller
from rla_client.cli.registration import CHANGE, add_command
from rla_client.cli.selection import Selection, takes_runs
from rla_client.database.clock import clock
from rla_client.database.text.numbers import bytes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rla_client.database.tree.items import Item


Small = Annotated[
    float | None,
    typer.Option("--small", help="Only runs that have no rows or whose last time-step is at most this."),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, rm, CHANGE, "rla rm --state failed --since 7d", "rla rm @last --yes")


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
    records, items = chosen_items(database, chosen, kinds, small)
    if not items:
        facts: dict[str, object] = {"runs": [], "items": 0, "size": 0, "entry": None}
        print_done(facts, "nothing to remove: no run matches", as_json=as_json)
        return
    refuse_live(database.data_root, items, clock())
    total = list_items(records, items, teller(as_json=as_json))
    _say_about_master(database.data_root, items, teller(as_json=as_json), master=master)
    agree("Move them to the trash" + (" here and on the master?" if master else "?"), yes)
    if master:
        from rla_client.database.changes.master_trash import remove_on_master

        remove_on_master(database.data_root, items, config)
    with held(database.data_root):
        name = move_to_trash(database.data_root, items, clock())
    kept = f"Kept for {TRASH_DAYS:.0f} days at least; delete now: rla trash empty"
    text = (
        f"moved {len(items)} item(s) to the trash as {name}\nMoved to trash ({bytes_text(total)}). {kept}\n"
        f"to undo: rla trash restore {name}"
    )
    facts = {"runs": names_of(records), "items": len(items), "size": total, "entry": name}
    print_done(facts, text, as_json=as_json)


def _say_about_master(
    data_root: Path, items: Sequence[Item], tell: Callable[[str], None], *, master: bool
) -> None:
    """Warn about files of which no other copy exists, and about copies on the master."""
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
