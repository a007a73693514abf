"""Restoration of a run's code."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rla_client.code import launch_archive
from rla_client.contract.errors import LaunchError
from rla_client.contract.layout import CODE, HYPARAM_FILE_NAME, LOG
from rla_client.database.tree.items import files_below
from rla_client.launcher.launch_record import read_launch


def restore_code(log_dir: str | os.PathLike[str], target: str | os.PathLike[str]) -> launch_archive.Manifest:
    """Restore the run's source tree in a new folder; each file is checked by its hash.

    Returns:
        The archive's manifest; `left_out` names files that were too large for it.

    Raises:
        LaunchError: no archive, a damaged one, or `target` is not empty.
    """
    folder = Path(log_dir).absolute()
    launch, _parameters = read_launch(folder)
    return launch_archive.restore(Path(os.path.normpath(folder / launch.code_dir)), Path(target).absolute())


def copy_code(log_dir: Path, target: Path) -> int:
    """Copy the stored code of an ordinary run of a database to a new folder; returns the number of files.

    Args:
        log_dir: the run's log folder, `<data root>/log/<table>/<index>`.
        target: a new folder.

    Raises:
        LaunchError: no code is stored, or `target` is not empty.
    """
    parts = log_dir.absolute().parts
    at = len(parts) - 1 - list(reversed(parts)).index(LOG) if LOG in parts else 0
    code = Path(*parts[:at], CODE, *parts[at + 1 :])
    parameters = {f"{HYPARAM_FILE_NAME}.{ending}" for ending in ("json", "yaml")}
    kept = [Path(path) for path in files_below(str(code))] if at else []
    kept = [path for path in kept if path.relative_to(code).as_posix() not in parameters]
    if not kept:
        raise LaunchError(
            f"the run of {log_dir} keeps no code\n"
            "hint: backup_code_dir in rla_config.yaml names what runs keep"
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise LaunchError(f"{target} is not empty: give a new folder")
        for path in kept:
            copy = target / path.relative_to(code)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
    except OSError as error:
        raise LaunchError(f"the code was not copied to {target}: {error}") from error
    return len(kept)
