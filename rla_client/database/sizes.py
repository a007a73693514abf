"""Disk use of a database by table and kind, and what of it was pruned to the master."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rla_client.contract.checkpoints import PRUNABLE, pruned_below
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.database.changes import HIDDEN, trash_entries
from rla_client.database.lake.store import read_parts
from rla_client.database.tree import Item, archived_root, find_items, find_tables, item_bytes

Row = tuple[str, str, int, int, int]


def disk_use(data_root: Path, runs: Collection[tuple[str, str]] | None = None) -> list[Row]:
    """Rows (table, kind, items, bytes, bytes on the master alone).

    Args:
        data_root: the database.
        runs: (table, index) of the only runs to count; None counts all, with the archive as tables
            `arc:<table>`, the trash and the lake as one row each.
    """
    rows = _tables(data_root, "", runs)
    if runs is not None:
        return rows
    if archived_root(data_root).is_dir():
        rows += _tables(archived_root(data_root), "arc:")
    if (data_root / HIDDEN).is_dir():
        entries = trash_entries(data_root)
        if entries:
            rows.append(
                ("(trash)", "", sum(len(entry.moves) for entry in entries), sum(e.bytes for e in entries), 0)
            )
    parts = read_parts(data_root)
    if parts:
        rows.append(("(lake)", "", len(parts), sum(sum(part.sizes.values()) for part in parts), 0))
    return rows


def _tables(data_root: Path, prefix: str, runs: Collection[tuple[str, str]] | None = None) -> list[Row]:
    rows = []
    for table in find_tables(data_root):
        for kind in DEFAULT_LOG_TYPES:
            items: list[Item] = find_items(data_root, kind, table)
            if runs is not None:
                items = [item for item in items if (item.table, item.index) in runs]
            if items:
                size = sum(item_bytes(item)[0] for item in items)
                pruned = sum(pruned_below(item.paths[0])[0] for item in items) if kind in PRUNABLE else 0
                rows.append((prefix + table, kind, len(items), size, pruned))
    return rows
