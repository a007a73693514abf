"""Named views of the page of runs.

A view is the state of the page, as the query of its address. Views lie in `<data_root>/.rla/views.json`:
`{"format": 1, "views": {name: query}}`. To this module a view is a text; the page checks its content like
that of any other address.
"""

from __future__ import annotations

import json
from pathlib import Path

from rla_client.contract.errors import ArgumentError, BrokenFileError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.database.changes.journal import HIDDEN
from rla_client.database.json_files import read_json

VIEWS_FILE = "views.json"
VIEWS_FORMAT = 1
MAX_VIEWS = 500
MAX_NAME = 100  # characters
MAX_QUERY = 50_000  # characters; 200 selected runs have some 20,000


def read_views(data_root: Path) -> dict[str, str]:
    """Name → query of all views; empty if the file is missing or broken."""
    try:
        with held_folder(data_root, HIDDEN) as folder:
            content = read_json(folder / VIEWS_FILE) or {}
    except (BrokenFileError, FileNotFoundError, NotADirectoryError):
        return {}
    views = content.get("views")
    found = views if isinstance(views, dict) else {}
    return {name: query for name, query in sorted(found.items()) if _is_view(name, query)}


def write_view(data_root: Path, name: object, query: object) -> dict[str, str]:
    """Store a view, or remove it; the caller holds `changing`.

    Args:
        data_root: the database.
        name: of the view.
        query: the part of the page's address after its `?`; None removes the view.

    Returns:
        All views after the change.

    Raises:
        ArgumentError: name or query is invalid, or there are too many views.
    """
    views = read_views(data_root)
    if query is None:
        views.pop(str(name), None)
    elif not _is_view(name, query):
        message = (
            f"a view has a name of 1 to {MAX_NAME} printable characters and at most {MAX_QUERY} of address"
        )
        raise ArgumentError(message)
    else:
        views[str(name)] = str(query)
    if len(views) > MAX_VIEWS:
        message = f"there are {MAX_VIEWS} views already; remove one first"
        raise ArgumentError(message)
    with held_folder(data_root, HIDDEN, create=True) as folder:
        text = json.dumps({"format": VIEWS_FORMAT, "views": views}, ensure_ascii=False, indent=1)
        write_atomic(folder / VIEWS_FILE, text.encode("utf-8", "replace"))
    return dict(sorted(views.items()))


def _is_view(name: object, query: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(query, str)
        and 0 < len(name) <= MAX_NAME
        and name.isprintable()
        and len(query) <= MAX_QUERY
    )
