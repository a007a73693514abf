"""Log folders for TensorBoard."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.records.record import Record

KEPT_LOGDIR_S = 30 * 86400.0  # age at which a folder of `rla tb --print` is no longer in use


def tensorboard_folders(data_root: Path, records: Sequence[Record]) -> dict[str, Path]:
    """Name in TensorBoard → folder of event files, for the runs that have one."""
    found = {}
    for record in records:
        folder = data_root / LOG / record.table / record.index / "tb"
        if os.path.isdir(folder):  # False also for a folder without permission
            found[f"{record.table}/{record.index}"] = folder
    return found


def fresh_logdir(now: float) -> Path:
    """Create a folder for `make_logdir` in the user's cache, and delete those older than `KEPT_LOGDIR_S`.

    Raises:
        OSError: it cannot be created.
    """
    import platformdirs

    try:
        cache = Path(platformdirs.user_cache_dir("rla")) / "tb"
    except RuntimeError as error:
        raise FileNotFoundError(errno.ENOENT, "this user has no home, and HOME is not set") from error
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for old in cache.iterdir():
        with suppress(OSError):
            if now - old.lstat().st_mtime > KEPT_LOGDIR_S:
                shutil.rmtree(old)  # links are removed, never followed
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)), dir=cache))


def make_logdir(folders: dict[str, Path], target: Path, *, copy: bool) -> None:
    """Fill a log folder for TensorBoard.

    Args:
        folders: result of `tensorboard_folders`.
        target: the folder; must be missing or empty.
        copy: copy the event files instead of linking their folders.

    Raises:
        DatabaseError: `target` is not empty.
    """
    if target.exists() and any(target.iterdir()):
        message = f"{target} is not empty; choose another folder"
        raise DatabaseError(message)
    for name, folder in folders.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if copy:
            shutil.copytree(folder, place)
        else:
            place.symlink_to(folder, target_is_directory=True)
