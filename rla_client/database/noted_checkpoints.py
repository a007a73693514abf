"""Checkpoint folders that another library wrote, as the run notes them.

Hugging Face's Trainer writes `checkpoint-<step>` folders wherever `output_dir` is. Those below the run's own
checkpoint folder are listed with its files; of others the path is told as it was noted, and not looked at: it
may be on another machine, and a database of somebody else's may name anything.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import ARCHIVE_TESTER, CHECKPOINT
from rla_client.database.json_files import read_json

NOTES = "hf_checkpoints"  # custom data: paths of folders
MAX_NOTED = 1000  # the newest
MAX_PATH_CHARS = 4096
_STEP = re.compile(r"-([0-9]{1,15})$")


@dataclass(frozen=True, slots=True)
class NotedCheckpoint:
    """A folder; `step` is the one that its name says, None without."""

    path: str
    step: int | None


def noted_checkpoints(data_root: str | os.PathLike[str], table: str, index: str) -> list[NotedCheckpoint]:
    """The folders that a run notes outside of its own checkpoint folder, oldest first."""
    try:
        found = read_json(Path(data_root, ARCHIVE_TESTER, table, f"{index}.json")) or {}
    except (DatabaseError, OSError):
        return []
    custom = found.get("custom_data")
    noted = custom.get(NOTES) if isinstance(custom, dict) else None
    own = os.path.join(os.path.abspath(data_root), CHECKPOINT, table, index, "")
    paths = [path for path in noted if isinstance(path, str)] if isinstance(noted, list) else []
    others = [path for path in dict.fromkeys(paths) if not path.startswith(own)][-MAX_NOTED:]
    return [NotedCheckpoint(path, _step(path)) for path in others if len(path) <= MAX_PATH_CHARS]


def _step(path: str) -> int | None:
    match = _STEP.search(path.rstrip("/"))
    return None if match is None else int(match[1])
