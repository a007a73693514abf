"""Disk use of a database."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from rla_client.contract.item.prune_notes import pruned_below
from rla_client.contract.layout import DEFAULT_LOG_TYPES, PRUNABLE
from rla_client.database.changes.trash import trash_entries
from rla_client.database.lake.manifest import read_parts
from rla_client.database.tree.data_root import archived_root
from rla_client.database.tree.items import Item, find_items, find_tables
from rla_client.database.tree.sizes import item_bytes

Row = tuple[str, str, int, int, int]  # table, kind, items, bytes, bytes on the master alone


def disk_use(data_root: Path, runs: Collection[tuple[str, str]] | None = None) -> list[Row]:
    """Rows (table, kind, items, bytes here, bytes on the master alone).

    Args:
        data_root: the database.
        runs: (table, index) of the runs to count; None counts all runs, archived ones as tables
            `arc:<table>`, and the trash and the lake as one row each.
    """
    rows = _tables(data_root, "", runs)
    if runs is not None:
        return rows
    if archived_root(data_root).is_dir():
        rows += _tables(archived_root(data_root), "arc:")
    entries = trash_entries(data_root)
    if entries:
        paths, size = sum(len(entry.moves) for entry in entries), sum(entry.bytes for entry in entries)
        rows.append(("(trash)", "", paths, size, 0))
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
