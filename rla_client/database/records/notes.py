"""Tags of a run, its note: `note.json` beside the log."""

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
NOTE_FORMAT = 1


def change_note(
    data_root: Path,
    record: Record | str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    note: str | None = None,
) -> dict[str, object]:
    """Change tags and note of a run; the caller holds `changing`.

    Args:
        data_root: the database.
        record: the run, or its `table/index`.
        add: tags to add.
        remove: tags to take away.
        note: the new note; None leaves it.

    Returns:
        The new content.

    Raises:
        ArgumentError: a tag is empty, too long, or holds blanks or commas.
        DatabaseError: the run has no log folder.
    """
    path = record if isinstance(record, str) else f"{record.table}/{record.index}"
    for tag in add:
        if not 0 < len(tag) <= MAX_TAG_CHARACTERS or not tag.isprintable() or {" ", ","} & {*tag}:
            message = f"{tag!r} is not a tag: 1 to {MAX_TAG_CHARACTERS} characters without blanks and commas"
            raise ArgumentError(message)
    try:
        with held_folder(data_root, f"{LOG}/{path}") as folder:
            return _rewrite(folder / NOTE_FILE, add, remove, note)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"{path} has no log folder of its own to hold tags and notes"
        raise DatabaseError(message) from error


def _rewrite(path: Path, add: Sequence[str], remove: Sequence[str], note: str | None) -> dict[str, object]:
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
    text = json.dumps(content, ensure_ascii=False, indent=1)
    write_atomic(path, text.encode("utf-8", "replace"))
    return content
