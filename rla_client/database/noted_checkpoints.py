"""Noted checkpoints of other libraries.

Hugging Face's Trainer writes `checkpoint-<step>` folders below `output_dir`. Those below the run's own
checkpoint folder are listed with its files. Of the others only the noted path is shown, without access to
it: it may be on another machine, and a foreign database may name any path.

Checkpoints of `note_checkpoint` are measured on the machine that noted them, if they belong to this user:
by names and sizes alone, without following links or opening files.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rla_client.contract.errors import DatabaseError, UnsafeNameError
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT
from rla_client.contract.safe_names import check_relative
from rla_client.database.json_files import read_json
from rla_client.database.records.record_reader import to_float
from rla_client.run.checkpoint_note import MAX_NOTED, NOTED

NOTES = "hf_checkpoints"  # custom data: paths of folders
MAX_PATH_CHARS = 4096
MAX_FILES = 10_000  # counted in one checkpoint
MAX_MEASURED = 50  # the newest ones: the page asks every few seconds
_STEP = re.compile(r"-([0-9]{1,15})$")


@dataclass(frozen=True, slots=True)
class NotedCheckpoint:
    """A folder or file of a checkpoint.

    Attributes:
        path: where it was written.
        step: as noted, or the one in its name; None if there is none.
        metrics: as noted.
        size: bytes; None if it was not measured.
        complete: whether its marker exists; None if it was not measured.
        by_call: whether `note_checkpoint` noted it.
    """

    path: str
    step: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    size: int | None = None
    complete: bool | None = None
    by_call: bool = False


def noted_checkpoints(data_root: str | os.PathLike[str], table: str, index: str) -> list[NotedCheckpoint]:
    """Checkpoints outside of a run's own checkpoint folder that it notes, those of the Trainer first."""
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
    old = len(called) - MAX_MEASURED
    measured = [_measured(note, look=number >= old) for number, note in enumerate(called)]
    return [*trainers, *filter(None, measured)]


def _measured(note: object, *, look: bool) -> NotedCheckpoint | None:
    """A note with the measures of its files; None for a malformed note."""
    if not isinstance(note, dict):
        return None
    path, marker, host, step, metrics = (
        note.get(key) for key in ("path", "marker", "host", "step", "metrics")
    )
    if not isinstance(path, str) or not os.path.isabs(path) or len(path) > MAX_PATH_CHARS or "\0" in path:
        return None
    numbers = metrics.items() if isinstance(metrics, dict) else ()
    kept = {str(name): to_float(value) for name, value in numbers if isinstance(value, int | float)}
    when = to_float(step) if isinstance(step, int | float) else None
    found = NotedCheckpoint(path, when, kept, by_call=True)
    try:
        inside = check_relative(str(marker)) if marker else ()
    except UnsafeNameError:
        return found
    return _looked_at(found, inside) if look and host == os.uname().nodename else found


def _looked_at(found: NotedCheckpoint, marker: Sequence[str]) -> NotedCheckpoint:
    """The checkpoint with its size and completeness as of now."""
    try:
        own = os.lstat(found.path)
        if own.st_uid != os.getuid():
            return found
        size = _size(found.path) if stat.S_ISDIR(own.st_mode) else own.st_size
        complete = os.path.lexists(os.path.join(found.path, *marker))
    except FileNotFoundError:
        return replace(found, size=0, complete=False)
    except (OSError, ValueError):  # not a path on this machine
        return found
    return replace(found, size=size, complete=complete)


def _size(path: str) -> int:
    """Bytes of the files in a folder, `MAX_FILES` at most."""
    total = count = 0
    for folder, _, files in os.walk(path):
        for name in files:
            count += 1
            if count > MAX_FILES:
                return total
            with suppress(FileNotFoundError):  # removed since the listing
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _step(path: str) -> int | None:
    match = _STEP.search(path.rstrip("/"))
    return None if match is None else int(match[1])
