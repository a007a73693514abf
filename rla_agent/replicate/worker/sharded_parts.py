"""Ledger rows of this machine's parts of spread sharded checkpoints.

A spread checkpoint's files are on several machines. The rows of a part say which of its files are sent. Once
all are, senders check the save on the master periodically (`sharded_master`) until it is complete there, and
has its name here.

The rows follow the files: where a save in the making is gone here, and its files are in the folder of its
final name, the rows get that folder, so nothing is sent again. Where a save is here under neither name, its
parts on the master are to be deleted: without the local ones nobody could load it. Both follow from the local
files alone, so the next scan repairs the state after a kill.

Belongs to the worker's thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import DROPPED, Key
from rla_agent.replicate.worker import file_decision, sharded_order
from rla_agent.replicate.worker.scan import Folder
from rla_agent.replicate.worker.send_job import SendJob
from rla_agent.replicate.worker.sharded_master import PartFound, PartLook
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS
from rla_client.contract.item.prune_notes import PrunedFile, noted_names, read_note
from rla_client.contract.layout import CHECKPOINT, PARTS_FOLDER
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.sharded_checkpoint.files import (
    METADATA,
    STAGED_METADATA,
    WHOLE_FILE,
    WHOLE_NAME,
    folder_name,
    parse_parts_name,
)

LOOK_S: Final = 2.0  # at least between two checks of a save on the master,
LOOK_SHARE: Final = 20  # and a twentieth of its age,
MOST_LOOK_S: Final = 60.0  # at most;
OLD_S: Final = 86400.0  # an older save usually had a rank killed:
OLD_LOOK_S: Final = 3600.0  # one check an hour
LOOKS_A_BATCH: Final = 16
MAX_TOLD: Final = 20  # waiting saves, in status
_STAGED: Final = os.fsencode(STAGED_METADATA)
_METADATA: Final = os.fsencode(METADATA)
_WHOLE: Final = os.fsencode(WHOLE_FILE)


class WaitingParts:
    """Saves in the making of a database."""

    def __init__(
        self, ledger: Ledger, number: int, root: bytes, target: str, give_up: Callable[[Key], None]
    ) -> None:
        """Begin without any save.

        Args:
            ledger: of this machine.
            number: of the database in it.
            root: its data root.
            target: the master, as notes name it.
            give_up: called with files that are no longer sent.
        """
        self._ledger, self._number, self._root, self._target = ledger, number, root, target
        self._give_up = give_up
        self._known = dict(ledger.making_folders(number))  # folder of the save → of the item
        self._due: dict[bytes, float] = {}
        self._words: dict[bytes, str] = {}
        self._looking: set[bytes] = set()

    def problems(self) -> list[str]:
        """What the saves wait for, in words."""
        return [self._words[path] for path in sorted(self._words)[:MAX_TOLD]]

    def see(self, folder: Folder, flying: Collection[SendJob]) -> None:
        """Take a scanned folder; `flying`: files that are being sent."""
        if folder.kind != CHECKPOINT:
            return
        found = sharded_order.split(folder.kind, folder.path + b"/x")
        if found is not None and sharded_order.is_in_making(folder.path + b"/x"):
            self._known.setdefault(found[0], folder.item)
            return
        if folder.path == folder.item or found is not None:
            for path in [path for path, item in self._known.items() if item == folder.item]:
                self._follow(path, folder.item, flying)
        if found is not None:
            self._see_notes(folder)

    def _follow(self, making: bytes, item: bytes, flying: Collection[SendJob]) -> None:
        """Let the rows of a save follow its files, if it is no longer in the making."""
        parsed = parse_parts_name(os.fsdecode(making.rpartition(b"/")[2]))
        assert parsed is not None, making
        final = item + b"/" + os.fsencode(folder_name(parsed[0], parsed[1]))
        if any(job.due.path.startswith((making + b"/", final + b"/")) for job in flying):
            return  # at the next look
        rows = self._rows(making)
        own = sharded_order.own_folder(final)
        note = self._note(own, WHOLE_NAME)  # retention may take it at any time
        moved = self._moved(making, item, final, rows)
        if moved and note is None:
            note = self._note(own, WHOLE_NAME)  # it took its name just now
        if moved is None or (moved and note is None and not self._is_whole_here(own)):
            return  # at the next scan, without files that retention is removing now
        if _METADATA in moved and _STAGED in rows:  # it was renamed before a kill: two rows
            del rows[_STAGED]
            moved.pop(_STAGED, None)
            self._ledger.forget(self._key(making, item, _STAGED))
        if moved:
            self._forget_older(final, item, note)
        sent: set[bytes] = set()
        for below, row in rows.items():
            key = self._key(making, item, below)
            if below in moved:
                self._ledger.move(key, self._key(final, item, moved[below]))
                continue
            self._give_up(key)
            acked: int | None = row[5]
            if acked is not None or self._ledger.assume_arrived(key):
                sent.add(below)
                self._ledger.set_state(key, DROPPED)
            else:
                self._ledger.forget(key)
        self._words.pop(making, None)
        self._due.pop(making, None)
        if not sent:
            self._forget(making)

    def _forget_older(self, final: bytes, item: bytes, note: PrunedFile | None) -> None:
        """Forget an older checkpoint whose name a save takes.

        The note of its `whole.json` says that it is complete there; its folder may be gone at the next scan.
        """
        for below in self._rows(final):
            self._ledger.forget(self._key(final, item, below))
        if note is not None:
            self._ledger.add_pruned(self._key(final, item, _WHOLE), self._number, note)

    def _forget(self, making: bytes) -> None:
        """Forget a save in the making."""
        del self._known[making]
        for folder in (making, sharded_order.own_folder(making)):
            self._ledger.forget_folder(self._number, folder)

    def _moved(
        self, making: bytes, item: bytes, final: bytes, rows: Mapping[bytes, Sequence[int]]
    ) -> dict[bytes, bytes] | None:
        """Files of a save under its final name → their names there.

        None where it is still in the making, the data root is missing, or its disk gives an error.
        """
        above = item + b"/"
        try:
            with closing_fd(os.open(os.path.join(self._root, item), FOLDER_FLAGS)) as there:
                if _found(there, making.removeprefix(above)) is not None:
                    return None
                inner = final.removeprefix(above)
                known = {below: row for below, row in rows.items() if row[0] != DROPPED}
                found = {below: _same_file(there, inner, below, row) for below, row in known.items()}
        except OSError:
            return None
        return {below: new for below, new in found.items() if new}

    def _rows(self, folder: bytes) -> dict[bytes, tuple[int, ...]]:
        """Rows of a checkpoint's files, by their paths below its folder."""
        own = sharded_order.own_folder(folder)
        found = dict(self._ledger.states(self._number, folder))
        inner = own.rpartition(b"/")[2] + b"/"
        found.update({inner + name: row for name, row in self._ledger.states(self._number, own).items()})
        return found

    def _key(self, folder: bytes, item: bytes, below: bytes) -> Key:
        inner, _, name = (folder + b"/" + below).rpartition(b"/")
        return Key(self._ledger.folder(self._number, inner, CHECKPOINT, item), name)

    def _see_notes(self, folder: Folder) -> None:
        """Add files that are on the master, by their notes, and were never sent from here."""
        names = noted_names(Path(os.fsdecode(os.path.join(self._root, folder.path))))
        if not names:
            return
        known = self._ledger.states(self._number, folder.path)
        for name in names:
            if os.fsencode(name) in known or os.fsencode(name) in folder.files:
                continue
            note = self._note(folder.path, name)
            if note is not None:
                number = self._ledger.folder(self._number, folder.path, folder.kind, folder.item)
                self._ledger.add_pruned(Key(number, os.fsencode(name)), self._number, note)

    def _is_whole_here(self, own: bytes) -> bool:
        """Whether `whole.json`, or a note of one on any master, is in a checkpoint's own folder."""
        here = Path(os.fsdecode(os.path.join(self._root, own)))
        return os.path.lexists(here / WHOLE_NAME) or read_note(here, WHOLE_NAME) is not None

    def _note(self, folder: bytes, name: str) -> PrunedFile | None:
        """The note of a file that is on this master alone."""
        note = read_note(Path(os.fsdecode(os.path.join(self._root, folder))), name)
        ours = os.fsdecode(folder) + "/" + name
        return note if note is not None and (note.path, note.target) == (ours, self._target) else None

    def take(self, now: float) -> tuple[PartLook, ...]:
        """Saves to check now, oldest first."""
        taken = []
        for path, item in self._known.items():
            if path in self._looking or now < self._due.get(path, 0.0):
                continue
            self._due[path] = now + LOOK_S
            try:
                began = os.lstat(os.path.join(self._root, path)).st_mtime
            except OSError:
                continue  # it went, or has its name: the next scan tells
            age = time.time() - began
            sends = sharded_order.waits_for_others(self._root, path, _WHOLE, self._states)
            most = MOST_LOOK_S if sends or age < OLD_S else OLD_LOOK_S
            self._due[path] = now + min(most, max(LOOK_S, age / LOOK_SHARE))
            if not sends:
                folder = Path(os.fsdecode(os.path.join(self._root, item)))
                name = os.fsdecode(path.rpartition(b"/")[2])
                taken.append((-age, path, PartLook(folder, item, name, self._target, stands_by=True)))
        taken.sort(key=lambda one: one[:2])
        first = taken[:LOOKS_A_BATCH]
        for _, path, _ in taken[LOOKS_A_BATCH:]:
            self._due[path] = now
        self._looking.update(path for _, path, _ in first)
        return tuple(look for _, _, look in first)

    def _states(self, folder: bytes) -> dict[bytes, tuple[int, ...]]:
        return self._ledger.states(self._number, folder)

    def looked(self, asked: Sequence[PartLook], results: Sequence[PartFound]) -> set[bytes]:
        """Take the results of checks; returns the items in which something has changed here."""
        self._looking.difference_update(map(_making_folder, asked))
        changed = set()
        for one in results:
            path = _making_folder(one.look)
            if not one.waits:
                self._words.pop(path, None)
                changed.add(one.look.item)
                continue
            self._words[path] = one.waits
            if one.lost:
                for below in self._rows(path):
                    self._ledger.lost(self._key(path, one.look.item, below), file_decision.LAST)
        return changed


def _found(folder: int, path: bytes) -> os.stat_result | None:
    """Entries below an open folder; None where it certainly has none.

    Raises:
        OSError: they cannot be read.
    """
    try:
        return os.stat(path, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _same_file(item: int, final: bytes, below: bytes, row: Sequence[int]) -> bytes:
    """Path of a row's file below the final folder; empty where it is not there.

    Raises:
        OSError: it cannot be determined.
    """
    new = _METADATA if below == _STAGED else below
    found = _found(item, final + b"/" + new)
    is_it = found is not None and (found.st_ino, found.st_size, found.st_mtime_ns) == (row[1], row[2], row[3])
    return new if is_it else b""


def _making_folder(look: PartLook) -> bytes:
    return b"/".join([look.item, os.fsencode(PARTS_FOLDER), os.fsencode(look.parts)])
