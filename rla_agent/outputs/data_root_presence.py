"""Presence of data roots with their items.

Folders are opened without following links. An item counts as removed only where its data root is there: a
missing root may be unmounted or moved.
"""

from __future__ import annotations

import os

from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.spool.opening import Opening


def same_root(opening: Opening) -> bool:
    """Whether the data root of this path is the one that the client recorded.

    Device numbers change at each boot: for a stream from before it, the inode and the item's folder decide.
    """
    try:
        status = os.stat(opening.root)
    except OSError:
        return False
    if status.st_ino != opening.root_inode:
        return False
    if status.st_dev == opening.root_device:
        return True
    return opening.opened < boot_time() and os.path.isdir(opening.log_folder)


def item_is_there(opening: Opening) -> bool:
    """Whether the data root is the recorded one and has the item's log folder."""
    return _has_folder(opening) and same_root(opening)


def root_is_away(opening: Opening) -> bool:
    """Whether an item is missing because its data root is missing, or another folder.

    A root with the item's folder in it is there: a file system that was mounted anew may have another device
    number.
    """
    return not same_root(opening) and not _has_folder(opening)


def _has_folder(opening: Opening) -> bool:
    try:
        os.close(open_folder(opening.root, opening.folders["log"]))
    except OSError:
        return False
    return True


def boot_time() -> float:
    """When this machine booted, Unix seconds; 0 when that cannot be found out."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            return next((float(line.split()[1]) for line in file if line.startswith("btime ")), 0.0)
    except OSError:
        return 0.0


def why_parked(root: str) -> str:
    """Message that says why streams of a data root wait."""
    if os.path.exists(root):
        return (
            f"the data root {root} is another folder here than for the training process (a container?); "
            "run an agent where it runs"
        )
    return f"the data root {root} is not here (not mounted, or hidden from the service)"
