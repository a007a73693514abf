"""Which files may be unpickled in full: those that this user, or for a checkpoint this run, wrote here.

Unpickling runs what a file names. A file counts as this user's own when nobody else but root may change it
or any folder that leads to it (the rule stands in `places`), and when it did not come from the master or
from a copied spool, which leave FETCHED_MARK beside what they bring. A checkpoint must also carry the
stamp of the run that loads it: a fork or a chain copies files of other runs beside those of its own.
The user's word (`trust=True`) is above all of this.
"""

from __future__ import annotations

import os
from pathlib import Path

from rla_client.contract import paths
from rla_client.contract.pruned import FETCHED_MARK
from rla_client.contract.retention import read_stamp


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
    problem = paths.file_problem(os.path.abspath(path))
    return None if problem is None else problem.what
