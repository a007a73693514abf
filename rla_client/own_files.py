"""Which files may be unpickled in full: those that this user, or for a checkpoint this run, wrote here.

Unpickling runs what a file names. A file counts as this user's own when it and every folder that leads to
it belong to this user or root and nobody else may change them, and when it did not come from the master or
from a copied spool, which leave FETCHED_MARK beside what they bring. A checkpoint must also carry the
stamp of the run that loads it: a fork or a chain copies files of other runs beside those of its own.
The user's word (`trust=True`) is above all of this.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from rla_client.checkpoint_retention import read_stamp
from rla_client.pruned import FETCHED_MARK


def checkpoint_problem(path: Path, run: str) -> str | None:
    """Why a checkpoint is not what the run with this identity wrote here; None when it is."""
    stamp = read_stamp(path)
    if not run or stamp is None or stamp.run != run:
        return "it was not written by this run"
    return file_problem(path)


def file_problem(path: Path) -> str | None:
    """Why a file is not this user's own; None when it is."""
    if os.path.lexists(path.parent / FETCHED_MARK):
        return "it came from another machine"
    for name in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        for part in (Path(name), *Path(name).parents):
            problem = _part_problem(part)
            if problem is not None:
                return problem
    return None


def _part_problem(part: Path) -> str | None:
    try:
        found = part.lstat()
    except OSError as error:
        return f"{part} cannot be looked at: {error.strerror}"
    if found.st_uid not in {0, os.geteuid()}:
        return f"{part} belongs to uid {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return None  # its mode says nothing; what it leads to is looked at too
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid))
    return f"others may write to {part}" if shared and not sticky else None


def _is_private(group: int) -> bool:
    """Whether a group is root's, or has no member but this user, as where the usual umask is 002."""
    if group == 0:
        return True
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (
        found.gr_gid == user.pw_gid and found.gr_name == user.pw_name and set(found.gr_mem) <= {user.pw_name}
    )
