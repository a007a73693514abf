"""Checkpoint folders that another library wrote, as the run notes them.

Hugging Face's Trainer writes `checkpoint-<step>` folders wherever `output_dir` is. Those below the run's own
checkpoint folder are listed with its files; of others the path is told as it was noted, and not looked at: it
may be on another machine, and a database of somebody else's may name anything.

What `note_checkpoint` noted is measured on the machine that did, and where it is this user's: by names and
sizes alone, no link is followed and no file opened.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT
from rla_client.database.json_files import read_json
from rla_client.run.checkpoint_note import NOTED

NOTES = "hf_checkpoints"  # custom data: paths of folders
MAX_NOTED = 1000  # the newest
MAX_PATH_CHARS = 4096
MAX_FILES = 10_000  # that are counted of one
_STEP = re.compile(r"-([0-9]{1,15})$")


@dataclass(frozen=True, slots=True)
class NotedCheckpoint:
    """A folder or file.

    Attributes:
        path: where it was written.
        step: as noted, or the one that its name says; None without.
        metrics: as noted.
        size: bytes; None where it was not looked at.
        complete: whether its marker is there; None where it was not looked at.
    """

    path: str
    step: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    size: int | None = None
    complete: bool | None = None
    by_call: bool = False  # of `note_checkpoint`


def noted_checkpoints(data_root: str | os.PathLike[str], table: str, index: str) -> list[NotedCheckpoint]:
    """What a run notes of checkpoints outside of its own checkpoint folder, the Trainer's first."""
    try:
        found = read_json(Path(data_root, ARCHIVE_TESTER, table, f"{index}.json")) or {}
    except (DatabaseError, OSError):
        return []
    custom = found.get("custom_data")
    noted = custom.get(NOTES) if isinstance(custom, dict) else None
    own = os.path.join(os.path.abspath(data_root), CHECKPOINT, table, index, "")
    paths = [path for path in noted if isinstance(path, str)] if isinstance(noted, list) else []
    others = [path for path in dict.fromkeys(paths) if not path.startswith(own)][-MAX_NOTED:]
    trainers = [NotedCheckpoint(path, _step(path)) for path in others if len(path) <= MAX_PATH_CHARS]
    notes = custom.get(NOTED) if isinstance(custom, dict) else None
    called = notes[-MAX_NOTED:] if isinstance(notes, list) else []
    return [*trainers, *filter(None, map(_measured, called))]


def _measured(note: object) -> NotedCheckpoint | None:
    """A note with what the disk says; None where nobody of ours wrote it."""
    if not isinstance(note, dict):
        return None
    path, marker, host, step, metrics = (
        note.get(key) for key in ("path", "marker", "host", "step", "metrics")
    )
    if not isinstance(path, str) or not os.path.isabs(path) or len(path) > MAX_PATH_CHARS or "\0" in path:
        return None
    numbers = metrics.items() if isinstance(metrics, dict) else ()
    kept = {str(name): float(value) for name, value in numbers if isinstance(value, int | float)}
    found = NotedCheckpoint(path, step if isinstance(step, int | float) else None, kept, by_call=True)
    return _looked_at(found, str(marker or "")) if host == os.uname().nodename else found


def _looked_at(found: NotedCheckpoint, marker: str) -> NotedCheckpoint:
    """With what is there now."""
    try:
        own = os.lstat(found.path)
        if own.st_uid != os.getuid():
            return found
        size, names = _size(found.path) if stat.S_ISDIR(own.st_mode) else (own.st_size, {""})
    except FileNotFoundError:
        return replace(found, size=0, complete=False)
    except OSError:
        return found
    return replace(found, size=size, complete=not marker or marker in names)


def _size(path: str) -> tuple[int, set[str]]:
    """Bytes and names of the files in a folder, `MAX_FILES` at most."""
    total, names = 0, set()
    for folder, _, files in os.walk(path):
        for name in files:
            if len(names) == MAX_FILES:
                return total, names
            with suppress(FileNotFoundError):  # it is being written
                total += os.lstat(os.path.join(folder, name)).st_size
                names.add(os.path.relpath(os.path.join(folder, name), path))
    return total, names


def _step(path: str) -> int | None:
    match = _STEP.search(path.rstrip("/"))
    return None if match is None else int(match[1])
