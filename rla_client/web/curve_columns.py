"""Columns of the tables of a page's runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.database.curves.curve_reader import Reader, read_tables
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.curves.rank_tables import Ranks
from rla_client.database.curves.stream_tables import roles_of, table_of
from rla_client.web.run_registry import PageRun, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
ELAPSED = "elapsed"  # seconds since a run's first row
ROW = "row"  # number of the row, from 0


def read_entries(
    site: Site, entries: Sequence[PageRun], names: Sequence[str], ranks: Ranks | None = None
) -> list[dict[str, Array]]:
    """The columns of each run, in the order of the runs; empty for a damaged table.

    Args:
        site: the page's databases.
        entries: the runs.
        names: of the columns.
        ranks: see `read_tables`.
    """
    found: dict[int, dict[str, Array]] = {}
    for place, database in enumerate(site.databases):
        mine = [entry for entry in entries if entry.place == place]
        pairs = [(entry.record.table, entry.record.index) for entry in mine]
        parents = zip(pairs, (entry.record.parent for entry in mine), strict=True)
        links = {pair: parent for pair, parent in parents if parent}
        reader = Reader(database.data_root, site.caches[place], links, database.lake)
        tables = read_tables(reader, pairs, list(dict.fromkeys(names)), ranks) if pairs else []
        for entry, table in zip(mine, tables, strict=True):
            found[entry.number] = {} if isinstance(table, Exception) else table
    return [found[entry.number] for entry in entries]


def x_values(table: dict[str, Array], x: str, rows: int) -> Array | None:
    """The x of each row; None where the table has no such column.

    Row numbers take the place of missing time-steps. A program that never sets its time-step has 0 in every
    row, which counts as missing.
    """
    if x == ROW or (x == TIME_STEP and (TIME_STEP not in table or not table[TIME_STEP].any())):
        return np.arange(rows, dtype=np.float64)
    if x != ELAPSED:
        return table.get(x)
    stamps = table.get(TIMESTAMP)
    if stamps is None or not len(stamps):
        return None
    first = stamps[np.isfinite(stamps)][:1]
    return stamps - first[0] if first.size else None


def table_path(site: Site, entry: PageRun) -> str:
    """Path of a run's table."""
    root = site.databases[entry.place].data_root
    return f"{root}/{LOG}/{entry.record.table}/{entry.record.index}/{PROGRESS_FILE}"


def table_stat(site: Site, entry: PageRun) -> tuple[int, int] | None:
    """(sum of inodes, sum of bytes) of a run's tables, which grows with each row; None without a table."""
    path = table_path(site, entry)
    inode = size = -1
    for role in ("", *roles_of(os.path.dirname(path))):
        with suppress(OSError):
            found = os.stat(table_of(path, role))
            inode, size = inode + found.st_ino, size + found.st_size
    return None if size < 0 else (inode, size)
