"""Permissions of fetched files or folders.

A file or folder here is never more open than on the master, nor than its folder, the umask, or what it
replaces here allow.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.copy_modes import copy_mode
from rla_client.contract.filesystem.atomic_write import fsync_folder
from rla_client.contract.filesystem.modes import PRIVATE_FILE, PRIVATE_FOLDER, folder_mode, give_mode, umask
from rla_client.contract.filesystem.plain_files import READ_FLAGS
from rla_client.contract.filesystem.safe_paths import held_folder, open_folder
from rla_client.contract.process.descriptors import closing_fd


def fetched_mode(folder: int, name: str, mode: int | None) -> int:
    """Permission bits of a file that is fetched into an open folder as `name`.

    Args:
        folder: descriptor.
        name: of the file; never more bits than those of a file that it replaces.
        mode: of the master's file; None: unknown, so it is for its owner alone.
    """
    bits = (PRIVATE_FILE if mode is None else mode) & folder_mode(folder) & ~umask()
    with suppress(FileNotFoundError):
        bits &= os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode | 0o700
    return copy_mode(bits)


def tighten(folder: int, name: str, state: RemoteStat) -> None:
    """Remove bits of group and others that the master's file does not have."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if state.mode is None or not stat.S_ISREG(found) or not found & ~state.mode & 0o077:
        return
    with closing_fd(os.open(name, READ_FLAGS, dir_fd=folder)) as descriptor:
        give_mode(descriptor, found & (state.mode | 0o700) & 0o777)


def make_below(session: TargetSession, root: str, parts: tuple[str, ...]) -> int:
    """Open (and make, no more open than on the master) a folder below the data root."""
    missing = [path for path in (Path(root), *Path(root).parents) if not path.is_dir()]
    for path in reversed(missing):
        path.mkdir(0o777 if umask() else 0o755, exist_ok=True)  # the agent's umask is 0
    for count in range(len(parts)):
        try:
            os.close(open_folder(root, "/".join(parts[: count + 1])))
        except FileNotFoundError:
            there = session.stat(os.fsencode("/".join(parts[: count + 1]))) if session.tells_modes else None
            mode = PRIVATE_FOLDER | ((there.mode or 0) if there is not None else 0)
            with held_folder(root, "/".join(parts[:count]) or ".") as above, suppress(FileExistsError):
                os.mkdir(above / parts[count], folder_mode(above) & mode)
                fsync_folder(above)
    return open_folder(root, "/".join(parts))
