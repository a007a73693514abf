"""Publication of sharded checkpoints.

Any process may publish at any time: a rank that wrote its receipt, a loader, `rla verify --fix`. The next
step follows from the files alone (`step`), each step is atomic, and repeating it changes nothing:

1. all receipts of one save are there, and their files have the recorded sizes;
2. rank 0's `.metadata` takes its name (its bytes are never interpreted);
3. `whole.json` is written: **from here on the checkpoint is complete**;
4. the folder takes its final name. An older one of that name is moved into `.rla-parts` first, then deleted.

Each step is durable before the next one. A kill between any two leaves the former checkpoints unchanged,
and the next publisher continues. Saves that the fence excludes (`fence`) move to `.rla-parts/abandoned-N/`:
further writes into such a folder fail.

If the ranks of a job have several data roots, none of these gets all parts. When all ranks of one machine
have written, `part.json` marks their part, for the agent to send. Publication then happens on the master, in
the same steps; here the save gets its name by `finish`, as a checkpoint of which some files, and
`whole.json`, are on the master.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from rla_client.contract.filesystem.atomic_write import fsync_folder, write_atomic
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint import removal
from rla_client.contract.sharded_checkpoint.files import (
    METADATA,
    OWN_FOLDER,
    PART_FILE,
    PART_NAME,
    STAGED_METADATA,
    WHOLE_NAME,
    folder_name,
    parse_parts_name,
)
from rla_client.contract.sharded_checkpoint.folder import is_of_save, look, parts_of, read_whole
from rla_client.contract.sharded_checkpoint.lock import publishing_alone
from rla_client.contract.sharded_checkpoint.records import MachinePart, Whole
from rla_client.contract.sharded_checkpoint.removal import abandon, doomed_name
from rla_client.contract.sharded_checkpoint.step import PublishStep, SaveInTheMaking, next_step, whole_of


def publish(folder: Path, parts: str) -> Whole | None:
    """Take all possible steps of a save; can be repeated, by several at once.

    Args:
        folder: the run's checkpoint folder.
        parts: name of the save's folder in PARTS_FOLDER.

    Returns:
        Its `whole.json`, once it is complete; None before that, and where it is gone.

    Raises:
        OSError: a step failed; the present files stay, and the next call tries again.
    """
    parsed = parse_parts_name(parts)
    if parsed is None:
        return None
    final = folder_name(parsed[0], parsed[1])
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        held_folder(folder, PARTS_FOLDER) as above,
        publishing_alone(above),
    ):
        while True:
            found = look(folder, parts)
            step = next_step(found)
            if step is PublishStep.WAIT:
                return None
            carry_out(step, found, folder, above / parts)
            if step is PublishStep.ABANDON:
                return None
            if step is PublishStep.DISCARD:
                return found.whole
    return _whole_under(folder, final, parsed[2])  # it has its name, from here or from another publisher


def carry_out(step: PublishStep, found: SaveInTheMaking, folder: Path, here: Path) -> None:
    """Take one step, durably; `here` is the folder of the save in the making."""
    above, whole = here.parent, found.whole
    if step is PublishStep.ABANDON:
        abandon(above, above, here.name)
    elif step is PublishStep.PUT_METADATA:
        put_metadata(here)
    elif step is PublishStep.MARK_PART:
        with held_folder(folder, f"{PARTS_FOLDER}/{here.name}/{OWN_FOLDER}") as own:
            part = MachinePart(next(iter(found.receipts.values())).save, found.beside)
            write_atomic(own / PART_NAME, part.encode())
    elif step is PublishStep.WRITE_WHOLE:  # in this very folder, also where another publisher renames it now
        with held_folder(folder, f"{PARTS_FOLDER}/{here.name}/{OWN_FOLDER}") as own:
            write_atomic(own / WHOLE_NAME, whole_of(found.receipts).encode())
    elif step is PublishStep.DISCARD:
        os.rename(here, doomed_name(above))
        removal.remove_replaced(above)
    else:
        assert whole is not None, step
        final = folder_name(whole.save.name, whole.save.step)
        if step is PublishStep.SET_ASIDE:
            abandon(folder, folder, final)
        elif step is PublishStep.PUT_AWAY_OLDER:
            os.rename(folder / final, doomed_name(above))
        elif _take_name(here, folder / final):
            with suppress(FileNotFoundError):  # where the master's own folder is
                os.unlink(folder / final / PART_FILE)
            fsync_folder(folder)
            fsync_folder(above)
            removal.remove_replaced(above)


def came_whole(folder: Path, parts: str) -> bool:
    """Take all possible steps of a save; whether it is complete then, here or on the master.

    Raises:
        OSError: as `publish`.
    """
    if os.path.lexists(folder / PARTS_FOLDER / parts / PART_FILE):
        return False  # the agent sends it, and gives it its name
    parsed = parse_parts_name(parts)
    if parsed is None:
        return False
    final = folder / folder_name(parsed[0], parsed[1])
    return publish(folder, parts) is not None or is_of_save(final, parsed[2])


def publish_all(folder: Path) -> list[Whole]:
    """Take all possible steps of each save of a checkpoint folder; returns those that became complete.

    Raises:
        OSError: a step could not be done.
    """
    found = [publish(folder, name) for name in parts_of(folder)]
    return [whole for whole in found if whole is not None]


def put_metadata(here: Path) -> None:
    """Give rank 0's `.metadata` its name, durably."""
    with suppress(FileNotFoundError):  # another publisher was faster
        os.replace(here / STAGED_METADATA, here / METADATA)
    fsync_folder(here)


def _take_name(here: Path, final: Path) -> bool:
    """False where something else has the name by now."""
    try:
        os.rename(here, final)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            return False
        raise
    return True


def _whole_under(folder: Path, final: str, token: str) -> Whole | None:
    whole = read_whole(folder / final)
    return whole if whole is not None and whole.save.token == token else None
