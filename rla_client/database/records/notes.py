"""User annotations of a run (`note.json`).

Tags, a note and a display name, in a file in the log folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rla_client.contract.errors import ArgumentError, BrokenFileError, DatabaseError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import LOG
from rla_client.database.json_files import read_json
from rla_client.database.records.record import Record
from rla_client.database.records.record_reader import NOTE_FILE

MAX_TAG_CHARACTERS = 80
MAX_NAME_CHARACTERS = 200
NOTE_FORMAT = 1


def change_note(
    data_root: Path,
    record: Record | str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None = None,
    display_name: str | None = None,
) -> dict[str, object]:
    """Change tags, note and display name of a run; the caller holds `changing`.

    Args:
        data_root: the database.
        record: the run, or its `table/index`.
        add: tags to add.
        remove: tags to remove.
        note: the new note; None keeps the old one.
        display_name: the new name, shown beside the index; empty removes it, None keeps the old one.

    Returns:
        The new content.

    Raises:
        ArgumentError: a tag is empty, too long, holds a comma, or has a blank at an end; a name is too
            long, or more than one line of text.
        DatabaseError: the run has no log folder.
    """
    path = record if isinstance(record, str) else f"{record.table}/{record.index}"
    for tag in add:
        if not _is_tag(tag):
            limits = f"1 to {MAX_TAG_CHARACTERS} characters without commas, no blank at an end"
            raise ArgumentError(f"{tag!r} is not a tag: {limits}")
    if display_name is not None:
        display_name = _checked_name(display_name)
    try:
        with held_folder(data_root, f"{LOG}/{path}") as folder:
            return _rewrite(folder / NOTE_FILE, add, remove, note, display_name)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{path} has no log folder of its own to hold tags, notes and names"
        raise DatabaseError(message) from error


def _is_tag(text: str) -> bool:
    short = 0 < len(text) <= MAX_TAG_CHARACTERS
    return short and text.isprintable() and "," not in text and text == text.strip()


def plain_tag(text: str) -> str:
    """A valid tag from another tool's, with forbidden characters replaced by blanks; may be empty."""
    text = "".join(letter if letter.isprintable() and letter != "," else " " for letter in text)
    return text.strip()[:MAX_TAG_CHARACTERS].strip()


def _checked_name(text: str) -> str:
    name = text.strip()
    if len(name) <= MAX_NAME_CHARACTERS and (name.isprintable() or not name):
        return name
    message = f"{name[:40]!r} is not a name: at most {MAX_NAME_CHARACTERS} characters, on one line"
    raise ArgumentError(message)


def _rewrite(
    path: Path, add: Sequence[str], remove: Sequence[str], note: str | None, display_name: str | None
) -> dict[str, object]:
    try:
        content: dict[str, object] = read_json(path) or {}
    except BrokenFileError:
        content = {}
    old = content.get("tags")
    tags = [str(tag) for tag in old] if isinstance(old, list) else []
    tags = [tag for tag in dict.fromkeys([*tags, *add]) if tag not in set(remove)]
    content |= {
        "format": NOTE_FORMAT,
        "tags": tags,
        "note": str(content.get("note") or "") if note is None else note,
    }
    if display_name is not None:
        content["display_name"] = display_name
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_atomic(path, text.encode("utf-8", "replace"))
    return content
