"""Edits of a database from a page."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from rla_client.contract.errors import ArgumentError, DatabaseError
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.live_runs import refuse_live
from rla_client.database.changes.master_trash import lacking
from rla_client.database.changes.trash import move_to_trash, restore_trash
from rla_client.database.clock import clock
from rla_client.database.records.notes import change_note
from rla_client.database.tree.items import run_items
from rla_client.database.tree.sizes import item_bytes
from rla_client.database.views import write_view
from rla_client.web.page_json import sent
from rla_client.web.request_arguments import asked_run, is_texts
from rla_client.web.run_registry import Site

MAX_NOTE = 100_000  # characters


def note(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Change tags, note and display name of a run; returns the new values.

    Raises:
        ArgumentError: a value has the wrong type, or the note is too long.
    """
    entry = asked_run(site, asked)
    root, text = site.database(entry).data_root, asked.get("note")
    if text is not None and (not isinstance(text, str) or len(text) > MAX_NOTE):
        raise ArgumentError(f"a note is a text of at most {MAX_NOTE} characters")
    name = asked.get("display_name")
    if name is not None and not isinstance(name, str):
        raise ArgumentError("a display name is a text")
    add, remove = asked.get("add", []), asked.get("remove", [])
    if not (is_texts(add) and is_texts(remove)):
        raise ArgumentError("tags to add and to remove are lists of texts")
    with _changing(root):
        content = change_note(root, entry.record, add=add, remove=remove, note=text, display_name=name)
    site.look_now()
    return {
        "tags": content["tags"],
        "note": content["note"],
        "display_name": content.get("display_name", ""),
    }


def trash(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Move a run that is not live to the trash; without `sure`, only describe what would be moved."""
    entry = asked_run(site, asked)
    root, record = site.database(entry).data_root, entry.record
    items = run_items(root, record.table, record.index)
    refuse_live(root, items, clock())
    if asked.get("sure") is not True:
        size = sum(item_bytes(item)[0] for item in items)
        return {"items": [item.kind for item in items], "bytes": size, "lacking": sent(lacking(root, items))}
    with _changing(root):
        refuse_live(root, items, clock())
        name = move_to_trash(root, items, clock())
    site.look_now()
    return {"entry": name, "place": entry.place}


def restore(site: Site, asked: dict[str, Any]) -> dict[str, Any]:
    """Restore an entry of the trash."""
    place = asked.get("place")
    if not isinstance(place, int) or not 0 <= place < len(site.databases):
        raise ArgumentError("there is no such database here")
    root = site.databases[place].data_root
    with _changing(root):
        count = restore_trash(root, str(asked.get("entry")))
    site.look_now()
    return {"count": count}


def view(site: Site, asked: dict[str, Any]) -> dict[str, str]:
    """Store a view in the first database, or remove it if its `query` is null; returns all views."""
    root = site.databases[0].data_root
    with _changing(root):
        return write_view(root, asked.get("name"), asked.get("query"))


def _changing(root: Path) -> AbstractContextManager[None]:
    """Lock a database for a change; raises DatabaseError at once if another command holds the lock."""

    def refuse() -> None:
        raise DatabaseError("another command is changing this database; try again when it has ended")

    return changing(root, clock(), refuse)
