"""Sharded checkpoints that exist only on the master.

Their files have notes, like other pruned files. `whole.json` is removed first and fetched last: so a
checkpoint with missing files is never mistaken for a complete one.
"""

from __future__ import annotations

import os
from pathlib import Path

from rla_client.contract.item.prune_notes import PrunedFile, pruned_files, read_note
from rla_client.contract.sharded_checkpoint.files import OWN_FOLDER, WHOLE_NAME


def note_of_whole(path: Path) -> PrunedFile | None:
    """The note of the `whole.json` of a checkpoint's folder; None where that is here, or never was."""
    return read_note(path / OWN_FOLDER, WHOLE_NAME)


def pruned_parts(path: Path) -> list[tuple[Path, PrunedFile]]:
    """Folder and note of each file of a checkpoint that is on the master alone, `whole.json` last."""
    own = path / OWN_FOLDER
    found = [(folder, note) for folder in (path, own) for note in pruned_files(folder)]
    return sorted(found, key=lambda one: one == (own, note_of_whole(path)))


def is_called_whole(path: str | os.PathLike[str]) -> bool:
    """Whether a folder has a `whole.json`, readable or not."""
    return os.path.lexists(os.path.join(path, OWN_FOLDER, WHOLE_NAME))
