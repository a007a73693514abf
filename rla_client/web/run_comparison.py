"""Comparison of two runs."""

from __future__ import annotations

from typing import Any

from rla_client.contract.layout import CODE
from rla_client.database.compare.code_diff import code_differences, has_archive
from rla_client.database.compare.run_differences import run_differences
from rla_client.web.diff_lines import diff_lines
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import Site, path_of
from rla_client.web.short_values import MAX_PARAMETERS, short_value

MAX_OTHERS = 50  # runs offered for a comparison


def others(site: Site, asked: dict[str, Any]) -> list[list[str]]:
    """[path, state] of the newest other runs whose path contains a text."""
    wanted, own = str(asked.get("text", "")).lower(), str(asked.get("run", ""))
    site.look(wait=True)
    found = []
    for entry in sorted(site.entries(), key=lambda one: -one.record.opened):
        path = path_of(entry)
        if wanted in path.lower() and path != own:
            found.append([path, entry.state])
        if len(found) == MAX_OTHERS:
            break
    return found


def difference(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The differences between two runs: parameters, environment, lines of code."""
    pair = (asked_run(site, asked), site.find(str(asked.get("other", ""))))
    runs = [site.run(one) for one in pair]
    sections = run_differences(*((one.data_root, one.record) for one in runs))
    folders = [one.folder(CODE) for one in runs]
    text, without = code_differences(*folders, bounded=True)
    return {
        "other": path_of(pair[1]),
        "sections": {
            name: [[key, *map(short_value, values)] for key, values in rows.items()][:MAX_PARAMETERS]
            for name, rows in sections.items()
        },
        "without": [path_of(one) for one, folder in zip(pair, folders, strict=True) if folder in without],
        "archives": [path_of(one) for one, folder in zip(pair, folders, strict=True) if has_archive(folder)],
        **diff_lines(text),
    }
