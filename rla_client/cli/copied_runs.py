"""Runs copied to another place of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_client.cli.chosen_items import chosen_items, list_items, names_of
from rla_client.cli.confirmation import agree
from rla_client.cli.open_database import held
from rla_client.cli.output import print_done, teller
from rla_client.cli.selection import Selection
from rla_client.database.clock import clock

if TYPE_CHECKING:
    from rla_client.database.database import Database


def copy_runs(
    database: Database,
    chosen: Selection,
    kinds: str | None,
    pattern: str,
    place: str,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Copy the items of runs to the paths of a pattern; `place` is its name for the user."""
    from rla_client.database.changes.copies import copy_items
    from rla_client.database.changes.live_runs import refuse_live

    records, items = chosen_items(database, chosen, kinds)
    if not items:
        facts: dict[str, object] = {"runs": [], "items": 0, "already_there": 0, "to": place}
        print_done(facts, "nothing to copy: no run matches", as_json=as_json)
        return
    refuse_live(database.data_root, items, clock())
    list_items(records, items, teller(as_json=as_json))
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
    text = f"copied {copied} item(s) to {place}" + (f"; {there} already there" if there else "")
    facts = {"runs": names_of(records), "items": copied, "already_there": there, "to": place}
    print_done(facts, text, as_json=as_json)
