"""Deleting a stream that was taken in to its end."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from rla_client.storage import TEMP_PREFIX, fsync_folder

GONE_PREFIX = f"{TEMP_PREFIX}gone-"  # streams on their way out


def remove_stream(folder: Path) -> None:
    """Delete a stream that was taken in to its end.

    It goes from sight in one step: half of a stream would be taken for a whole one.

    Raises:
        OSError: it is still there.
    """
    gone = folder.with_name(f"{GONE_PREFIX}{folder.name}")
    with suppress(FileNotFoundError):
        folder.rename(gone)
        fsync_folder(folder.parent)
    shutil.rmtree(gone, ignore_errors=True)
