"""Files of `wandb.save`."""

from __future__ import annotations

import glob
import math
import os
from pathlib import Path
from typing import IO

from rla_client.integrations.wandb.artifact import put
from rla_client.run.current_logger import warn


class SavedFiles:
    """Copies of files in the run; files that have changed are copied again at its end."""

    def __init__(self) -> None:
        """Start without copies."""
        self._changed: dict[tuple[Path, Path], float] = {}  # (source, copy) → mtime of the source

    def save(self, pattern: str, folder: Path, base_path: str | os.PathLike[str] | None) -> list[str]:
        """Copy the files of a glob into the folder; returns the paths of the copies.

        Args:
            pattern: the glob.
            folder: the run's folder for such files.
            base_path: the part of the files' paths to remove, as in wandb.
        """
        above = os.path.dirname(os.path.dirname(pattern)) if os.path.isabs(pattern) else os.curdir
        bases, copies = (folder, Path(os.path.abspath(base_path or above))), []
        for path in map(Path, map(os.path.abspath, sorted(glob.glob(pattern, recursive=True)))):
            if path.is_file():
                base = next((base for base in bases if path.is_relative_to(base)), path.parent)
                copies.append(str(folder / path.relative_to(base)))
                self._save(path, Path(copies[-1]))
        return copies

    def save_again(self) -> None:
        """Copy the files that have changed since."""
        for path, target in list(self._changed):
            self._save(path, target)

    def _save(self, path: Path, target: Path) -> None:
        try:
            changed = path.stat().st_mtime
            if path != target and self._changed.get((path, target)) != changed:
                put(target, path)
                self._changed[path, target] = changed
        except OSError as error:  # such as a full disk, which must not stop the training
            self._changed.setdefault((path, target), -math.inf)  # try again at the end
            warn(f"{path} was not copied: {error}")


def restored(path: Path, before: Path | None) -> IO[str] | None:
    """A saved file, open for reading; None if it does not exist.

    Args:
        path: in this run.
        before: in the run that this one continues.
    """
    if before is not None and before.is_file() and not path.exists():
        put(path, before)
    return path.open() if path.is_file() else None
