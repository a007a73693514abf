"""Runs that continue one another: a run that was continued on another machine is a chain of items.

run.json of each later item has a `parent` with `chain` set: `{"run": index, "table", "time_step", "rows",
"chain": true}`; `rows` and `time_step` say how much of the parent counts (what it recorded after its last
checkpoint was done again). A fork has a parent too, but no `chain`: it holds a copy of the rows.

A chain is shown as one run, by its newest item; the earlier ones are left out of lists, and its curves
begin with theirs. A parent that is not in this database is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.layout import LOG, RunIndex
from rla_client.contract.opening import run_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[np.float64]]

MAX_LINKS = 1000  # of one chain; more is a circle


@dataclass(frozen=True, slots=True)
class Link:
    """One item of a chain.

    Attributes:
        index: of the item.
        rows: how many of its first rows count; None: see `time_step`.
        time_step: only rows up to it count; None: all.
    """

    index: str
    rows: int | None = None
    time_step: float | None = None


def link_of(run: Mapping[str, Any], table: str) -> Link | None:
    """The run that the one of this run.json continues, None without one."""
    parent = run.get("parent")
    if not isinstance(parent, dict) or parent.get("chain") is not True or parent.get("table") != table:
        return None
    index, rows, step = str(parent.get("run")), parent.get("rows"), parent.get("time_step")
    if RunIndex.parse(index) is None or ".." in index.split("/"):
        return None
    return Link(
        index,
        rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None,
        float(step) if isinstance(step, int | float) else None,
    )


def chain_of(data_root: str | os.PathLike[str], table: str, index: str) -> list[Link]:
    """The items of a run, the first begun first; the last is the run itself."""
    chain = [Link(index)]
    seen = {index}
    while len(chain) < MAX_LINKS:
        link = link_of(run_file(data_root, table, chain[0].index), table)
        if link is None or link.index in seen or not Path(data_root, LOG, table, link.index).is_dir():
            break
        seen.add(link.index)
        chain.insert(0, link)
    return chain


def chain_columns(
    chain: Sequence[Link], read: Callable[[str, Sequence[str]], Columns], names: Sequence[str], clock: str
) -> Columns:
    """Columns of a chain's rows as of one run's.

    Args:
        chain: see `chain_of`.
        read: columns of one item, by index and names; names that it has not are left out.
        names: columns.
        clock: name of the column with the time-step.

    Returns:
        Name → values, shape (rows,), NaN where an item has no such column.

    Raises:
        What `read` raises for the last item; earlier ones without a table have no rows.
    """
    import numpy as np

    parts = []
    for link in chain:
        try:
            part = read(link.index, list(dict.fromkeys([*names, clock])))
        except FileNotFoundError:
            if link is chain[-1] and len(chain) == 1:
                raise
            continue
        parts.append(_cut(part, link, clock))
    lengths = [max((len(column) for column in part.values()), default=0) for part in parts]
    found = {}
    for name in names:
        if any(name in part for part in parts):
            columns = [
                part[name] if name in part else np.full(length, np.nan)
                for part, length in zip(parts, lengths, strict=True)
            ]
            found[name] = np.concatenate(columns)
    return found


def chain_names(chain: Sequence[Link], table_folder: str) -> list[str]:
    """Columns of a chain's tables, those of the last item first.

    Raises:
        BrokenFileError: one is not a table.
        OSError: that of the last item cannot be opened.
    """
    from rla_client.database.csv_table import read_tail

    names: list[str] = []
    for link in reversed(chain):
        try:
            names += read_tail(f"{table_folder}/{link.index}/progress.csv").columns
        except FileNotFoundError:
            if len(chain) == 1:
                raise
    return list(dict.fromkeys(names))


def _cut(part: Columns, link: Link, clock: str) -> Columns:
    if link.rows is not None:
        return {name: column[: link.rows] for name, column in part.items()}
    if link.time_step is not None and clock in part:
        keep = part[clock] <= link.time_step
        return {name: column[keep] for name, column in part.items()}
    return part
