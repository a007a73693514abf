"""Atomic removal of sharded checkpoints.

A checkpoint loses its name at once, or is not removed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_folder
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.folder import is_of_save
from rla_client.contract.sharded_checkpoint.lock import publishing_alone

REPLACED_PREFIX: Final = f"{TEMP_PREFIX}replaced-"  # of folders of PARTS_FOLDER that are about to be deleted


def remove(folder: Path, parts: str) -> None:
    """Delete a save in the making; it loses its name at once, or is not removed.

    Raises:
        OSError: it could not be renamed.
    """
    with suppress(FileNotFoundError), held_folder(folder, PARTS_FOLDER) as above:
        with publishing_alone(above):
            os.rename(above / parts, doomed_name(above))
        remove_replaced(above)


def remove_final(folder: Path, final: str, token: str) -> None:
    """Delete the checkpoint with a save's final name, if it is of that save; it loses its name at once.

    A newer one of its time-step, which has taken the name meanwhile, stays.

    Raises:
        OSError: it could not be renamed.
    """
    with held_folder(folder, PARTS_FOLDER, create=True) as above:
        with publishing_alone(above):
            if is_of_save(folder / final, token):
                os.rename(folder / final, doomed_name(above))
        remove_replaced(above)


def abandon(folder: Path, above: Path, name: str) -> None:
    """Move an entry of `above` to the first `abandoned-N/` of a folder that has none of its name.

    Raises:
        OSError: it could not be moved.
    """
    number = 1
    while True:
        with held_folder(folder, f"abandoned-{number}", create=True) as aside:
            if not os.path.lexists(aside / name):
                with suppress(FileNotFoundError):  # somebody else moved it
                    os.rename(above / name, aside / name)
                    fsync_folder(aside)
                return
        number += 1


def doomed_name(above: Path) -> Path:
    """A name for a folder that is about to be deleted."""
    return above / f"{REPLACED_PREFIX}{os.urandom(8).hex()}"


def remove_replaced(above: Path) -> None:
    """Delete replaced checkpoints, including those of a killed publisher."""
    with suppress(OSError):
        for entry in os.listdir(above):
            if entry.startswith(REPLACED_PREFIX):
                shutil.rmtree(above / entry, ignore_errors=True)
