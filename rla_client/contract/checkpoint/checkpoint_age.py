"""The age of checkpoint files.

Time-steps may restart within a run (stages of a curriculum, one `learn` after another), so the highest is not
always the newest. Our files have a stamp with the order of their saves, which no copy, pull or move changes;
the note of a pruned file repeats it. Files without one (of the original, of other programs) are ordered by
time-step where there are no others, as the original does, else by their modification time among the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rla_client.contract.checkpoint.stamp import read_stamp
from rla_client.contract.item.prune_notes import noted_names, read_note
from rla_client.contract.sharded_checkpoint.files import FOLDER_ENDING
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole


class SaveTime(NamedTuple):
    """Data that order a checkpoint file in time.

    Attributes:
        name: of the file.
        time_step: of the run's clock; -1 where the name has none.
        mtime_ns: of its last change, 0 where unknown.
        order: of its stamp; None without one.
    """

    name: str
    time_step: int
    mtime_ns: int
    order: int | None


def oldest_first(files: Iterable[SaveTime]) -> list[SaveTime]:
    """Files of one folder in the order of their saves."""
    found = list(files)
    if all(file.order is None for file in found):
        return sorted(found, key=lambda file: (file.time_step, file.mtime_ns, file.name))
    return sorted(
        found,
        key=lambda file: (file.mtime_ns if file.order is None else file.order, file.time_step, file.name),
    )


def save_time(folder: Path, name: str, time_step: int) -> SaveTime:
    """When a file (or a sharded checkpoint) of a folder was saved, here or on the master alone."""
    told = read_whole(folder / name) if name.endswith(FOLDER_ENDING) else read_stamp(folder / name)
    if told is not None:
        return SaveTime(name, time_step, 0, told.order)
    note = note_of_whole(folder / name) if name.endswith(FOLDER_ENDING) else read_note(folder, name)
    if note is not None:
        return SaveTime(name, time_step, note.mtime_ns, note.order)
    try:
        return SaveTime(name, time_step, os.stat(folder / name).st_mtime_ns, None)
    except OSError:
        return SaveTime(name, time_step, 0, None)


def newest_order(folder: Path) -> int:
    """Order of our last save of any name in a checkpoint folder; 0 without one."""
    try:
        names = {*os.listdir(folder), *noted_names(folder)}
    except (FileNotFoundError, NotADirectoryError):
        return 0
    orders = (save_time(folder, name, -1).order for name in names if name.endswith((".pt", FOLDER_ENDING)))
    return max((order for order in orders if order is not None), default=0)
