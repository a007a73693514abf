"""Removal of superseded checkpoints."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgpack

from rla_client.contract.checkpoint.checkpoint_retention import Retention, list_saved, superseded
from rla_client.contract.checkpoint.dropped_note import is_dropped, note_dropped
from rla_client.contract.checkpoint.sending_hold import is_held
from rla_client.contract.checkpoint.stamp import Stamp, read_stamp
from rla_client.contract.errors import BrokenFileError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import MAX_STATE_BYTES, RESUME_FOLDER, arrays_name


def remove_superseded(folder: Path, name: str, run: str, keep: Retention) -> list[str]:
    """Delete the files that `keep` does not protect; call it once the newest file is durable.

    Returns:
        File names that were removed. Files without a stamp, or of another run, never are.
    """
    if keep.max_to_keep is None:
        return []
    removed = []
    gone = superseded([saved for saved in list_saved(folder, name) if saved.stamp.run == run], keep)
    note_dropped(folder, [entry.file for entry in gone])
    for entry in gone:
        if is_held(folder / entry.file):
            continue  # the holder removes it
        with suppress(FileNotFoundError):
            (folder / entry.file).unlink()
            removed.append(entry.file)
        remove_beside(folder, Path(entry.file).stem, entry.stamp)
    return removed


def remove_dropped(folder: Path, file: str) -> None:
    """Remove a dropped file after its hold has ended."""
    stamp = read_stamp(folder / file)
    with suppress(OSError):
        if stamp is not None and is_dropped(folder, file) and not is_held(folder / file):
            (folder / file).unlink()
            remove_beside(folder, Path(file).stem, stamp)


def remove_beside(folder: Path, stem: str, stamp: Stamp) -> None:
    """Remove the files of one save in `.resume` of a checkpoint folder."""
    with suppress(OSError), held_folder(folder, RESUME_FOLDER) as below:
        _remove_state(below, stem, stamp)


def _remove_state(below: Path, stem: str, stamp: Stamp) -> None:
    """Remove a state, unless it is of a later save of that time-step, which may be writing it just now."""
    (below / f"{stem}.marks.json").unlink(missing_ok=True)  # written by the job that wrote the checkpoint
    (below / arrays_name(stem, stamp.order)).unlink(missing_ok=True)
    state, taken = below / f"{stem}.state", below / f"{TEMP_PREFIX}{stamp.token}.state"
    if _saved_as(state) not in {stamp.order, None}:
        return
    with suppress(FileNotFoundError):
        state.replace(taken)  # checked again where nobody can replace it
        order = _saved_as(taken)
        if order not in {stamp.order, None} and not state.exists():
            taken.replace(state)
            return
        taken.unlink()


def _saved_as(state: Path) -> int | None:
    """The order of a state's save; None: it is no state."""
    try:
        content = msgpack.unpackb(read_small(state, 2 * MAX_STATE_BYTES), strict_map_key=False)
    except (OSError, ValueError, msgpack.UnpackException, BrokenFileError):
        return None
    order = content.get("order") if isinstance(content, dict) else None
    return order if isinstance(order, int) else None
