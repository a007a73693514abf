"""Retention of sharded checkpoints.

The rules of checkpoint files are applied to complete checkpoints. An incomplete save (a rank was killed, the
disk was full) wastes space. It is removed once a newer one is complete, or as soon as the notes show that no
rank works on it any more. Where the ranks have several data roots, each machine applies the same rules to its
part. A save that waits for the master may become complete after newer ones: it is removed when the rules
would not protect it if it were complete.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_client.contract.checkpoint.checkpoint_removal import remove_beside
from rla_client.contract.checkpoint.checkpoint_retention import Retention, Saved, superseded
from rla_client.contract.checkpoint.dropped_note import is_dropped, note_dropped
from rla_client.contract.checkpoint.sending_hold import is_held
from rla_client.contract.checkpoint.stamp import Stamp
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    FOLDER_ENDING,
    PART_FILE,
    WHOLE_FILE,
    layout_of,
    parse_folder_name,
    parse_parts_name,
    plan_note_name,
)
from rla_client.contract.sharded_checkpoint.folder import (
    UNREADABLE,
    finals_of,
    look,
    parts_of,
    read_fence,
    read_whole,
    receipts_in,
)
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole
from rla_client.contract.sharded_checkpoint.publish import publish
from rla_client.contract.sharded_checkpoint.records import MAX_NOTE_BYTES, PlanNote, Whole
from rla_client.contract.sharded_checkpoint.removal import remove, remove_final

LAYOUT_KEPT_S: Final = 600.0  # ranks wait for each other's notes a fifth of that


def list_whole(folder: Path, name: str) -> list[tuple[str, Whole]]:
    """The complete checkpoints of one name: folder's name, and `whole.json`; oldest first."""
    found = []
    for final in finals_of(folder):
        parsed = parse_folder_name(final)
        whole = read_whole(folder / final) if parsed is not None and parsed[0] == name else None
        if whole is not None and (whole.save.name, whole.save.step) == parsed:
            found.append((final, whole))
    return sorted(found, key=lambda one: one[1].order)


def remove_superseded_sharded(folder: Path, name: str, run: str, keep: Retention) -> list[str]:
    """Delete complete checkpoints that `keep` does not protect; call it once the newest is complete.

    Incomplete saves older than the newest complete one are removed, too: nobody will complete them. So are
    leftovers of earlier openings, once this opening of the run has a complete checkpoint.

    Returns:
        Names of the folders that are dropped. Those of another run never are.

    Raises:
        OSError: one could not be removed.
    """
    saved = _list_all(folder, name)
    ours = [entry for entry, _ in saved if entry.stamp.run == run]
    gone = superseded(ours, keep)
    note_dropped(folder, [entry.file for entry in gone], WHOLE_FILE)
    for entry in gone:
        if not is_held(folder / entry.file / WHOLE_FILE):  # else the holder removes it
            _remove_whole(folder, entry.file, entry.stamp)
    if ours:
        _remove_incomplete(folder, name, ours, keep)
    fence = read_fence(folder)
    if any(entry.stamp.run == run and (fence is None or epoch >= fence.epoch) for entry, epoch in saved):
        _remove_abandoned(folder, name)
    return [entry.file for entry in gone]


def remove_superseded_late(folder: Path, name: str) -> None:
    """As `remove_superseded_sharded`, by the rules of the newest save, for the ranks may have ended.

    Does nothing where that does not tell them.

    Raises:
        OSError: one could not be removed.
    """
    saved = [entry for entry, _ in _list_all(folder, name)]
    newest = max(saved, key=lambda entry: entry.stamp.order, default=None)
    for receipt in () if newest is None else receipts_in(folder / newest.file):
        if receipt.keep is not None:
            remove_superseded_sharded(folder, name, receipt.save.run, receipt.keep)
            return


def remove_dropped_sharded(folder: Path, final: str) -> None:
    """Remove a dropped checkpoint after its hold has ended.

    Raises:
        OSError: it could not be removed.
    """
    if is_dropped(folder, final, WHOLE_FILE) and not is_held(folder / final / WHOLE_FILE):
        name, _ = parse_folder_name(final) or ("", 0)
        for entry, _ in _list_all(folder, name):
            if entry.file == final:
                _remove_whole(folder, final, entry.stamp)


def _remove_whole(folder: Path, final: str, stamp: Stamp) -> None:
    remove_final(folder, final, stamp.token)
    remove_beside(folder, final.removesuffix(FOLDER_ENDING), stamp)


def _list_all(folder: Path, name: str) -> list[tuple[Saved, int]]:
    """The whole checkpoints of one name, here or on the master, and their epochs."""
    here = [(Saved(final, whole.stamp), whole.save.epoch) for final, whole in list_whole(folder, name)]
    return [*here, *_list_spread(folder, name)]


def _list_spread(folder: Path, name: str) -> Iterator[tuple[Saved, int]]:
    """Those of several data roots of which this machine has its part, and the master all; and epochs."""
    for final in finals_of(folder):
        parsed, note = parse_folder_name(final), note_of_whole(folder / final)
        if parsed is None or parsed[0] != name or note is None:
            continue
        own = next((receipt for receipt in receipts_in(folder / final) if receipt.beside), None)
        if own is not None and (own.save.name, own.save.step) == parsed:
            yield Saved(final, own.stamp), own.save.epoch


def _remove_incomplete(folder: Path, name: str, whole: Sequence[Saved], keep: Retention) -> None:
    """Delete saves older than the newest of `whole` that cannot become complete, or would not stay then."""
    newest = max(whole, key=lambda entry: entry.stamp.order).stamp
    for parts in parts_of(folder):
        parsed = parse_parts_name(parts)
        if parsed is None or parsed[0] != name:
            continue
        try:
            found = look(folder, parts)
        except FileNotFoundError:
            continue
        told = [receipt for receipt in found.receipts.values() if receipt.save.run == newest.run]
        if not told or max(receipt.order for receipt in told) >= newest.order:
            continue
        waiting = Saved(parts, told[0].stamp)
        if not found.marked or waiting in superseded([*whole, waiting], keep):
            remove(folder, parts)


def _remove_abandoned(folder: Path, name: str) -> None:
    """Delete incomplete saves of earlier openings of the run; further writes there fail."""
    with suppress(FileNotFoundError, NotADirectoryError), held_folder(folder, PARTS_FOLDER) as above:
        for aside in [entry for entry in os.listdir(above) if entry.startswith("abandoned-")]:
            with suppress(OSError), held_folder(above, aside) as here:
                for parts in os.listdir(here):
                    parsed = parse_parts_name(parts)
                    if parsed is not None and parsed[0] == name and read_whole(here / parts) is None:
                        shutil.rmtree(here / parts, ignore_errors=True)


def remove_overtaken(folder: Path, current: PlanNote) -> None:
    """Delete incomplete saves; call it once all ranks have written their notes to a later one.

    Each rank writes one save after the other, so none of them is at an earlier one then.

    Args:
        folder: the run's checkpoint folder.
        current: note of a rank to the later save.

    Raises:
        OSError: one could not be removed.
    """
    for parts in parts_of(folder):
        with suppress(*UNREADABLE):
            path = folder / PARTS_FOLDER / parts / plan_note_name(current.rank)
            note = PlanNote.decode(read_small(path, MAX_NOTE_BYTES))
            earlier = note.token != current.token and note.number < current.number
            if not earlier or publish(folder, parts) is not None:
                continue
            if not os.path.lexists(folder / PARTS_FOLDER / parts / PART_FILE):  # it waits for the master
                remove(folder, parts)


def remove_unused_layouts(folder: Path, used: Collection[str], now: float) -> None:
    """Delete unused descriptions of pieces: a growing state has new ones at each save.

    Args:
        folder: the run's checkpoint folder.
        used: layouts that ranks have.
        now: mtime of a file that was written there just now, in seconds.

    Raises:
        OSError: one could not be removed.
    """
    with suppress(FileNotFoundError, NotADirectoryError), held_folder(folder, PARTS_FOLDER) as above:
        for name in os.listdir(above):
            layout = layout_of(name)
            if layout is None or layout in used:
                continue
            with suppress(FileNotFoundError):
                if os.lstat(above / name).st_mtime < now - LAYOUT_KEPT_S:
                    os.unlink(above / name)
