"""Items of the chosen runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rla_client.cli.selection import Selection
from rla_client.contract.errors import ArgumentError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.spelling import unknown
from rla_client.database.text.numbers import bytes_text
from rla_client.database.text.safe_text import clean
from rla_client.database.text.text_tables import cut, width
from rla_client.database.tree.items import run_items
from rla_client.database.tree.run_names import shown_name
from rla_client.database.tree.sizes import item_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rla_client.database.database import Database
    from rla_client.database.records.record import Record
    from rla_client.database.tree.items import Item


SHOWN = 20  # number of runs that are listed; others are counted
Kinds = Annotated[str | None, typer.Option("--kinds", help="Only these kinds, e.g. checkpoint,results.")]


def chosen_items(
    database: Database, chosen: Selection, kinds: str | None, small: float | None = None
) -> tuple[list[Record], list[Item]]:
    """The chosen runs, and their items of the chosen kinds."""
    if not chosen.given and small is None:
        raise ArgumentError(
            "say which runs: RUN…, --run, --tag, --state, --where, --since, --commit, --table, --limit"
        )
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


def names_of(records: Sequence[Record]) -> list[dict[str, object]]:
    """Runs as JSON objects."""
    return [{"run": record.index, "table": record.table} for record in records]


def list_items(records: Sequence[Record], items: Sequence[Item], tell: Callable[[str], None]) -> int:
    """List the runs and items that a command will change; returns the bytes of the items."""
    for record in records[:SHOWN]:
        tell(cut(clean(f"  {shown_name(record.table, record.index)}"), width()))
    if len(records) > SHOWN:
        tell(f"  … and {len(records) - SHOWN} more")
    total = sum(item_bytes(item)[0] for item in items)
    tell(f"{len(records)} run(s), {len(items)} item(s), {bytes_text(total)}")
    return total
