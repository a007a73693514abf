"""Media of a run by name, over time-steps.

The page shows the files of one name in one folder under a slider.
"""

from __future__ import annotations

import os
from typing import Any

from rla_client.contract.layout import OTHER_RESULTS
from rla_client.database.results_by_name import Group, grouped, in_order
from rla_client.web.file_download import SHOWN
from rla_client.web.item_files import MAX_LISTED, list_files
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import Site
from rla_client.web.table_files import ENDINGS as TABLE_ENDINGS

_OWN = {
    ".html": "page",
    ".htm": "page",
    ".ply": "points",
}  # shown by the page's scripts
MAX_GROUPS = 500
MAX_STEPS = 2000  # of one name, as many as a slider has places


def media(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The media among a run's results, by name with their time-steps; its tables; its other files."""
    found = list_files(site, asked_run(site, asked), OTHER_RESULTS)
    shown = [one.path for one in found.files if _kind(one.path)]
    by_path = {one.path: one for one in found.files if not _kind(one.path)}
    others = [by_path[path] for path in in_order(list(by_path))]
    groups = grouped(shown)
    tables = grouped([path for path in by_path if path.rpartition(".")[2].lower() in TABLE_ENDINGS])
    names = sorted(groups, key=lambda name: (name.startswith(("abandoned-", "before-fork")), name))
    return {
        "groups": [
            {"name": name, "kind": _kind(name), "count": len(groups[name]), "files": _thinned(groups[name])}
            for name in names[:MAX_GROUPS]
        ],
        "names": len(names),
        "tables": [{"name": name, "files": _thinned(tables[name])} for name in sorted(tables)[:MAX_GROUPS]],
        "others": others[:MAX_LISTED],
        "other_count": len(others),
        "count": len(found.files),
        "cut": found.cut,
        "passed": found.passed,
    }


def _kind(path: str) -> str:
    """image, video, audio, page or points; empty for other files."""
    ending = os.path.splitext(path)[1].lower()
    return _OWN.get(ending) or SHOWN.get(ending, "").partition("/")[0]


def _thinned(group: Group) -> Group:
    """At most `MAX_STEPS` files of a group, including the last."""
    if len(group) <= MAX_STEPS:
        return group
    return [group[place * (len(group) - 1) // (MAX_STEPS - 1)] for place in range(MAX_STEPS)]
