"""Atomic copies of sharded checkpoints.

Each copy in another run appears complete or not at all.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_folder
from rla_client.contract.sharded_checkpoint.folder import read_whole

_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


def copy_sharded(source: Path, target: Path, make_way: Callable[[Path], object] | None = None) -> None:
    """Copy the folder of a complete checkpoint into a folder; nothing, where it is no longer complete.

    Files are linked where the disk supports that, since none of them is ever modified.

    Args:
        source: the checkpoint's folder.
        target: folder that gets one of its name.
        make_way: called with the copy's name as long as something else has it; None: that is an error.

    Raises:
        OSError: the disk is full, and the like; the partial copy was removed.
    """
    target.mkdir(parents=True, exist_ok=True)
    temp = target / f"{TEMP_PREFIX}{os.urandom(8).hex()}"
    try:
        try:
            shutil.copytree(source, temp, symlinks=True, copy_function=_link_or_copy, ignore=_own_alone)
        except (FileNotFoundError, shutil.Error):
            if read_whole(source) is None:
                return  # retention dropped it meanwhile
            raise
        if read_whole(temp) is None:
            return
        _place(temp, target / source.name, make_way)
        fsync_folder(target)
    finally:
        shutil.rmtree(temp, ignore_errors=True)


def _place(temp: Path, final: Path, make_way: Callable[[Path], object] | None) -> None:
    while True:
        try:
            os.rename(temp, final)
        except OSError as error:
            if error.errno not in _TAKEN or make_way is None:
                raise
            make_way(final)
        else:
            return


def _own_alone(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(TEMP_PREFIX)]


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target, follow_symlinks=False)
