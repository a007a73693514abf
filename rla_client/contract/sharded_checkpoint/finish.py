"""Local completion of a save that is complete on the master."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.item.prune_notes import PrunedFile, write_note
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    OWN_FOLDER,
    PART_FILE,
    PART_NAME,
    WHOLE_FILE,
    folder_name,
    is_only_of_the_making,
    parts_name,
)
from rla_client.contract.sharded_checkpoint.folder import is_named, look
from rla_client.contract.sharded_checkpoint.lock import publishing_alone
from rla_client.contract.sharded_checkpoint.publish import carry_out, put_metadata
from rla_client.contract.sharded_checkpoint.records import Whole
from rla_client.contract.sharded_checkpoint.step import PublishStep, next_step


def finish_on_master(
    folder: Path,
    content: bytes,
    below: str,
    target: str,
    *,
    times: Mapping[str, int] = MappingProxyType({}),
    create: bool = False,
) -> str | None:
    """Rename a save that is complete on the master here, too: it is a pruned one from then on.

    Its local files stay. The other files, and last `whole.json`, get notes; a power cut may lose all of these
    but the last one. Can be repeated, by several at once, after a kill at any step.

    Args:
        folder: the run's checkpoint folder.
        content: of the master's `whole.json`.
        below: path of `folder` below the data root, and on the master.
        target: the master, as notes name it.
        times: of the files there, in ns, by their paths below the checkpoint's folder.
        create: also where nothing of it is here.

    Returns:
        The name of the checkpoint's folder; None where nothing of it is here, or a later save of its
        time-step has the name.

    Raises:
        RemoteProtocolError: that is no `whole.json`.
        OSError: a step could not be done; the next call tries again.
    """
    whole = Whole.decode(content)
    save = whole.save
    parts, final = parts_name(save.name, save.step, save.token), folder_name(save.name, save.step)
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        held_folder(folder, PARTS_FOLDER, create=create) as above,
        publishing_alone(above),
    ):
        while not is_named(folder / final, whole):
            with held_folder(folder, f"{PARTS_FOLDER}/{parts}/{OWN_FOLDER}", create=create) as own:
                _note_rest(above / parts, own, whole, PrunedFile(
                    f"{below}/{final}/{WHOLE_FILE}", len(content), hashlib.sha256(content).hexdigest(),
                    times.get(WHOLE_FILE, whole.order), target, time.time(), order=whole.order,
                ), times)  # fmt: skip
            found = replace(
                look(folder, parts), whole=whole, fence=None
            )  # it is whole, whatever the fence excludes
            step = next_step(found)
            carry_out(step, found, folder, above / parts)
            if step is PublishStep.DISCARD:
                return None
    if not is_named(folder / final, whole):
        return None
    with suppress(FileNotFoundError):  # left by a kill right after the folder got its name
        os.unlink(folder / final / PART_FILE)
    return final


def _note_rest(here: Path, own: Path, whole: Whole, mark: PrunedFile, times: Mapping[str, int]) -> None:
    """Write notes of a save's files that are only on the master; `mark`: the note of its `whole.json`."""
    put_metadata(here)
    there = mark.path.removesuffix(WHOLE_FILE)
    for entry in (*whole.files, whole.metadata):
        if not os.path.lexists(here / entry.file):
            note = replace(mark, path=there + entry.file, size=entry.size, sha256=entry.sha256, order=None)
            note = replace(note, mtime_ns=times.get(entry.file, note.mtime_ns))
            write_note(here, note, durable=False)
    for name in os.listdir(own):
        if is_only_of_the_making(name) and name != PART_NAME:  # it makes the agent check here again
            os.unlink(own / name)
    write_note(own, mark)
