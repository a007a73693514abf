"""Disk use of a database by table and kind."""

from __future__ import annotations

from pathlib import Path

from rla_client.database.changes import HIDDEN, trash_entries
from rla_client.database.tree import Item, archived_root, find_items, find_tables, item_bytes
from rla_client.layout import DEFAULT_LOG_TYPES

Row = tuple[str, str, int, int]


def disk_use(data_root: Path) -> list[Row]:
    """Rows (table, kind, items, bytes); the archive as tables `arc:<table>`, the trash as one row."""
    rows = _tables(data_root, "")
    if archived_root(data_root).is_dir():
        rows += _tables(archived_root(data_root), "arc:")
    if (data_root / HIDDEN).is_dir():
        entries = trash_entries(data_root)
        if entries:
            rows.append(
                ("(trash)", "", sum(len(entry.moves) for entry in entries), sum(e.bytes for e in entries))
            )
    return rows


def _tables(data_root: Path, prefix: str) -> list[Row]:
    rows = []
    for table in find_tables(data_root):
        for kind in DEFAULT_LOG_TYPES:
            items: list[Item] = find_items(data_root, kind, table)
            if items:
                rows.append((prefix + table, kind, len(items), sum(item_bytes(item)[0] for item in items)))
    return rows
