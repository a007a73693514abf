"""Chains of runs across machines.

run.json of each later item has a `parent` with `chain` set: `{"run": index, "table", "time_step", "rows",
"chain": true}`; `rows` and `time_step` limit the valid part of the parent, because steps after its last
checkpoint were repeated. A fork also has a parent, but no `chain`: it holds a copy of the rows. A chain is
shown as one run, by its newest item; lists omit the earlier items, and its curves begin with theirs. A
parent outside of this database is ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla_client.contract.layout import LOG
from rla_client.contract.run_index import RunIndex

MAX_LINKS = 1000  # of one chain


@dataclass(frozen=True, slots=True)
class ChainLink:
    """One item of a chain.

    Attributes:
        index: index of the item.
        rows: number of its first rows that are valid; None: see `time_step`.
        time_step: rows up to it are valid; None: all rows.
    """

    index: str
    rows: int | None = None
    time_step: float | None = None


def link_of(run: Mapping[str, Any], table: str) -> ChainLink | None:
    """Link to the run that the run of this run.json continues; None without one."""
    parent = run.get("parent")
    if not isinstance(parent, dict) or parent.get("chain") is not True or parent.get("table") != table:
        return None
    index, rows, step = str(parent.get("run")), parent.get("rows"), parent.get("time_step")
    if RunIndex.parse(index) is None or ".." in index.split("/"):
        return None
    return ChainLink(
        index,
        rows if isinstance(rows, int) and not isinstance(rows, bool) and rows >= 0 else None,
        float(step) if isinstance(step, int | float) else None,
    )


def chain_of(data_root: str | os.PathLike[str], table: str, index: str) -> list[ChainLink]:
    """Items of a run's chain, oldest first; the last is the run itself."""
    from rla_client.contract.run_file import run_file

    chain = [ChainLink(index)]
    seen = {index}
    while len(chain) < MAX_LINKS:
        link = link_of(run_file(data_root, table, chain[0].index), table)
        if link is None or link.index in seen or not Path(data_root, LOG, table, link.index).is_dir():
            break
        seen.add(link.index)
        chain.insert(0, link)
    return chain
