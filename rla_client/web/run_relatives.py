"""Relatives of a run: runs before it, runs that continue it, forks of it."""

from __future__ import annotations

import json
from typing import Any

from rla_client.contract.run_file import run_file
from rla_client.contract.run_index import RunIndex
from rla_client.database.tree.chains import chain_of
from rla_client.web.page_json import sent
from rla_client.web.run_registry import PageRun, Site, path_of

MAX_RELATED = 50  # parents, and children


def relatives(site: Site, entry: PageRun) -> dict[str, Any]:
    """`parents`: runs that this one continues or was forked from, nearest first; `children`: the reverse."""
    record, root = entry.record, site.database(entry).data_root
    above: list[dict[str, Any]] = []
    table, index, seen = record.table, record.index, {(record.table, record.index)}
    while len(above) < MAX_RELATED:
        parent = run_file(root, table, index).get("parent")
        if not isinstance(parent, dict) or RunIndex.parse(str(parent.get("run"))) is None:
            break
        table, index = str(parent.get("table") or table), str(parent["run"])
        if (table, index) in seen or ".." in f"{table}/{index}".split("/"):
            break
        seen.add((table, index))
        known = {"path": f"{entry.place}/{table}/{index}", "index": index}
        above.append({**known, "step": sent(parent.get("time_step")), "chain": parent.get("chain") is True})
    text = json.dumps(record.index)[1:-1]
    below = [
        {
            "path": path_of(one),
            "index": one.record.index,
            "chain": one.record.parent == record.index,
            "state": one.state,
        }
        for one in site.entries()
        if one.place == entry.place
        and text in one.record.told_json
        and str(one.record.told.get("parent", "")).startswith(f"{record.index} at ")
    ]
    chain = [link.index for link in chain_of(root, record.table, record.index)]
    return {"parents": above, "children": below[:MAX_RELATED], "chain": len(chain)}
