"""The environment that a run was started in."""

from __future__ import annotations

from typing import Any

from rla_client.contract.layout import FOLDER_KINDS
from rla_client.database.records.told_fields import ENVIRONMENT_FILE
from rla_client.web.diff_lines import diff_lines
from rla_client.web.item_files import list_files
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import asked_run
from rla_client.web.run_registry import Site
from rla_client.web.small_json import as_mapping, small_json


def environment(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """The environment of a run's start, the diff of uncommitted changes, and the sizes of its items."""
    entry = asked_run(site, asked)
    found = small_json(site, entry, ENVIRONMENT_FILE)
    git = as_mapping(found.pop("git", None))
    diff = as_mapping(git.pop("diff", None))
    kinds = {}
    for kind in FOLDER_KINDS:
        listed = list_files(site, entry, kind)
        if listed.files:
            kinds[kind] = [sum(one.size for one in listed.files), len(listed.files), listed.cut]
    return {
        "environment": sent(found),
        "git": sent(git),
        "diff": {
            **sent({name: diff.get(name) for name in ("state", "left_out")}),
            **diff_lines(str(diff.get("text") or "")),
        },
        "kinds": kinds,
    }
