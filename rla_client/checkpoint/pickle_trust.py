"""Trust rule for pickles.

Unpickling runs code that a file names. A file counts as this user's own when nobody but root and the user may
change it or any folder on its path (filesystem/trusted_paths.py), and when it did not come from the master or
from a copied spool (item/foreign_mark.py). A checkpoint must also have the stamp of the loading run, since a
fork or a chain copies files of other runs beside its own. The user may override the rule (`trust=True`).
"""

from __future__ import annotations

import os
from pathlib import Path

from rla_client.contract.checkpoint.stamp import read_stamp
from rla_client.contract.filesystem import trusted_paths
from rla_client.contract.item.foreign_mark import is_foreign


def checkpoint_problem(path: Path, run: str) -> str | None:
    """Why a checkpoint was not written here by the run of this identity; None when it was."""
    stamp = read_stamp(path)
    if not run or stamp is None or stamp.run != run:
        return "it was not written by this run"
    return pickle_problem(path)


def pickle_problem(path: Path) -> str | None:
    """Why a file is not this user's own; None when it is."""
    if is_foreign(path):
        return "it came from another machine"
    problem = trusted_paths.file_problem(os.path.abspath(path))
    return None if problem is None else problem.what
