"""Small JSON files in a run's log folder."""

from __future__ import annotations

from typing import Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.filesystem.plain_files import MAX_SMALL_BYTES
from rla_client.contract.layout import LOG
from rla_client.contract.text.bounded_parsing import parse_json
from rla_client.web.item_files import item_file
from rla_client.web.run_registry import PageRun, Site


def small_json(site: Site, entry: PageRun, name: str) -> dict[str, Any]:
    """A JSON object of a run's log folder; empty where the file is damaged or cannot be read."""
    try:
        with item_file(site, entry, LOG, name) as file:
            found = parse_json(file.read(MAX_SMALL_BYTES))
    except (OSError, ValueError, DatabaseError):
        return {}
    return as_mapping(found)


def as_mapping(value: object) -> dict[str, Any]:
    """A mapping as it is; empty in place of anything else."""
    return value if isinstance(value, dict) else {}
