"""Presence of data roots, of the items in them.

Folders are opened without following links. A root that is missed may be away (unmounted, moved) or the item
in it removed: only where its root is there does an item count as removed.
"""

from __future__ import annotations

import os

from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.spool.opening import Opening


def same_root(opening: Opening) -> bool:
    """Whether the data root that this agent sees is the one that the client meant.

    Device numbers are given anew at each boot: for a stream of before, the inode and the item's folder
    must do.
    """
    try:
        found = os.stat(opening.root)
    except OSError:
        return False
    if found.st_ino != opening.root_inode:
        return False
    if found.st_dev == opening.root_device:
        return True
    return opening.opened < boot_time() and os.path.isdir(opening.log_folder)


def item_is_there(opening: Opening) -> bool:
    """Whether the data root is the one that is meant, and the item's log folder is in it."""
    return _has_folder(opening) and same_root(opening)


def root_is_away(opening: Opening) -> bool:
    """Whether an item is missed because all of its data root is not there, or another one.

    One whose folder is found is not away: a file system that was mounted anew may have another device number.
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
    """Say why streams of a data root wait; an item is given up only where its root is there."""
    if os.path.exists(root):
        return (
            f"the data root {root} is another folder here than for the training process (a container?); "
            "run an agent where it runs"
        )
    return f"the data root {root} is not here (not mounted, or hidden from the service)"
