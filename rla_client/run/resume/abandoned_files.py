"""Abandoned files behind the point of a resume.

Figures and checkpoints that are later than the point move to `abandoned-N/`. Time-steps may have restarted
since then: the order of the saves decides, and for figures the time, too.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from rla_client.contract.checkpoint.checkpoint_age import SaveTime, save_time
from rla_client.contract.item.prune_notes import drop_note, pruned_files, write_note
from rla_client.contract.layout import CHECKPOINT, OTHER_RESULTS
from rla_client.contract.sharded_checkpoint.fence import raise_fence
from rla_client.contract.sharded_checkpoint.files import FOLDER_ENDING, parse_folder_name
from rla_client.contract.sharded_checkpoint.folder import finals_of, parts_of
from rla_client.run.resume.resume_point import ResumePoint

_FIGURE = re.compile(r"^(\d+)-")
_CHECKPOINT = re.compile(r"^.+[_-](\d+)\.pt$")


def abandon_later(point: ResumePoint) -> None:
    """Move figures and checkpoints that were made after the point away; can be repeated."""
    target = point.continues.abandoned
    for kind, pattern in ((CHECKPOINT, _CHECKPOINT), (OTHER_RESULTS, _FIGURE)):
        root = Path(point.item.folder(kind))
        for folder, folders, files in os.walk(root):
            folders[:] = [
                entry
                for entry in folders
                if not entry.startswith(("abandoned-", ".")) and not entry.endswith(FOLDER_ENDING)
            ]
            for file in files:
                match = pattern.match(file)
                if match is None or not _is_later(point, save_time(Path(folder), file, int(match[1]))):
                    continue
                source = Path(folder, file)
                final = root / target / source.relative_to(root)
                with suppress(OSError):
                    final.parent.mkdir(parents=True, exist_ok=True)
                    source.rename(final)
    _abandon_notes(point)
    _abandon_sharded(point)


def _is_later(point: ResumePoint, file: SaveTime) -> bool:
    """Whether a file was made after the checkpoint from which the run continues."""
    if point.time_step is None:
        return True
    if point.order is None:
        return file.time_step > point.time_step
    if file.order is not None:
        return file.order > point.order
    return file.time_step > point.time_step and file.mtime_ns > point.order


def _abandon_notes(point: ResumePoint) -> None:
    """Move the notes of later checkpoints that are on the master alone."""
    folder, target = Path(point.item.folder(CHECKPOINT)), point.continues.abandoned
    for note in pruned_files(folder):
        match = _CHECKPOINT.match(note.name)
        if match is None or not _is_later(point, save_time(folder, note.name, int(match[1]))):
            continue
        with suppress(OSError):
            (folder / target).mkdir(parents=True, exist_ok=True)
            write_note(folder / target, note)
            drop_note(folder, note.name)


def _abandon_sharded(point: ResumePoint) -> None:
    """Move later sharded checkpoints. Saves of earlier openings that still run are discarded."""
    folder, target = Path(point.item.folder(CHECKPOINT)), point.continues.abandoned
    finals = finals_of(folder)
    if not finals and not parts_of(folder):
        return
    with suppress(OSError):
        raise_fence(folder, point.run, point.epoch)
    for final in finals_of(folder):
        parsed = parse_folder_name(final)
        found = None if parsed is None else save_time(folder, final, parsed[1])
        if found is None or found.order is None:
            continue  # not whole
        if _is_later(point, found):
            with suppress(OSError):
                (folder / target).mkdir(parents=True, exist_ok=True)
                (folder / final).rename(folder / target / final)
