"""Marks of items with files of another machine.

A mark in an item's folder says that files in it came from the master or from a copied spool.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.layout import CHECKPOINT, FETCHED_MARK, FOREIGN_MARK, LOG, OTHER_RESULTS, TMP_DATA

MARKED_KINDS: Final = (LOG, CHECKPOINT, OTHER_RESULTS, TMP_DATA)  # kinds in which pickles may lie
PICKLE_ENDINGS: Final = (".pkl", ".pt", ".distcp")  # of files that may be unpickled in full


def mark_foreign(folder: Path) -> None:
    """Mark a folder of an item, with all below it, as written by another machine.

    Raises:
        OSError: it could not be written.
    """
    if not _is_marked(folder):
        write_atomic(folder / FOREIGN_MARK, b"")


def is_foreign(path: Path) -> bool:
    """Whether a mark in the file's folder, or in one above it, says that another machine wrote the file.

    A mark by another user of this machine (in /tmp, say) does not count.
    """
    files = {Path(os.path.abspath(path)), Path(os.path.realpath(path))}
    return any(
        os.path.lexists(file.parent / FETCHED_MARK) or any(map(_is_marked, file.parents)) for file in files
    )


def _is_marked(folder: Path) -> bool:
    try:
        return os.lstat(folder / FOREIGN_MARK).st_uid in {0, os.geteuid()}
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # unknown
