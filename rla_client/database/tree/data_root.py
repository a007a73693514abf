"""Search for a command's data root."""

from __future__ import annotations

import os
from pathlib import Path

from rla_client.config.project import CONFIG_NAME, DATA_FOLDER
from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import ARCHIVE_TESTER, ARCHIVED_TABLE, HYPARAMETER, LOG
from rla_client.database.tree.items import find_tables

SEARCH_DEPTH = 2  # folders below the one with rla_config.yaml


def check_data_root(data_root: str | os.PathLike[str]) -> Path:
    """The data root as an absolute path.

    Raises:
        DatabaseError: it is not a folder.
    """
    root = Path(os.path.abspath(os.path.expanduser(os.fspath(data_root))))
    if not root.is_dir():
        message = f"{root} is not a folder; give the data root, the folder that holds log/"
        raise DatabaseError(message)
    return root


def archived_root(data_root: Path) -> Path:
    """The archive of a database, itself laid out as a database."""
    return data_root / ARCHIVED_TABLE


class NoRunsYetError(DatabaseError):
    """The project's database has no run yet, which is no fault."""


def find_data_root(start: Path, *, new: bool = False) -> Path:
    """Find the database at or above a folder, below the project's folder, or in `data` of the folder.

    The project's folder is the one with rla_config.yaml at or above `start`. Of several databases below it,
    that in `data` of `start`, or else in `data` of the project, is chosen.

    Args:
        start: folder to start from.
        new: for a project without runs, return the folder of its first run.

    Raises:
        NoRunsYetError: there is a project, but no run yet.
        DatabaseError: there is no database, or several.
    """
    project = None
    for folder in (start, *start.parents):
        if is_data_root(folder):
            return folder
        if (folder / CONFIG_NAME).is_file():
            project = project or folder
            found = sorted(roots_below(folder, SEARCH_DEPTH))
            found = [path for path in found if path.is_relative_to(start)] or found
            own = [place / DATA_FOLDER for place in (start, folder) if place / DATA_FOLDER in found]
            if own or len(found) == 1:
                return (own or found)[0]
            if found:
                listing = "\n".join(f"  --data-root {path}" for path in found)
                message = f"{folder} holds several databases, choose one:\n{listing}"
                raise DatabaseError(message)
    if is_data_root(start / DATA_FOLDER):  # made by rla_client.init without rla_config.yaml
        return start / DATA_FOLDER
    if project is not None and new:
        return project / DATA_FOLDER
    if project is not None:
        message = f"no runs yet in {project / DATA_FOLDER}"
        raise NoRunsYetError(message)
    message = (
        f"no database here: neither {start} nor a folder above it holds one; "
        "go to your project, or give --data-root FOLDER (the folder that holds log/)"
    )
    raise DatabaseError(message)


def is_data_root(folder: Path) -> bool:
    """Whether a folder looks like a data root: a kind with a table in it."""
    kinds = [kind for kind in (LOG, ARCHIVE_TESTER, HYPARAMETER) if (folder / kind).is_dir()]
    return bool(kinds) and bool(find_tables(folder, kinds))


def roots_below(folder: Path, depth: int) -> list[Path]:
    """Databases in a folder, at most `depth` folders deep; hidden folders are skipped."""
    found = []
    for entry in os.scandir(folder):
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        path = Path(entry.path)
        if is_data_root(path):
            found.append(path)
        elif depth > 1:
            found += roots_below(path, depth - 1)
    return found
