"""Status of a folder's sharded checkpoints.

Each is complete, or lacks named parts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.errors import BrokenFileError, NotAFileError, RemoteProtocolError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.sharded_checkpoint.files import (
    FOLDER_ENDING,
    OWN_FOLDER,
    folder_name,
    parse_folder_name,
    parse_parts_name,
)
from rla_client.contract.sharded_checkpoint.folder import finals_of, look, parts_of, read_whole, receipts_in
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole, pruned_parts
from rla_client.contract.sharded_checkpoint.records import MAX_NOTE_BYTES, PlanNote, Receipt


@dataclass(frozen=True, slots=True)
class ShardedStatus:
    """A sharded checkpoint, complete or not.

    Attributes:
        name: of the series; `step` its time-step.
        whole: whether it is complete; nothing else can be loaded.
        path: its folder.
        shards: ranks whose part is there.
        world: number of ranks; 0 where unknown.
        missing: the ranks whose part is not there.
        hosts: machines of these, as far as they are known.
        size: bytes; 0 of one that is not whole.
        order: nanoseconds of its save; 0 of one that is not whole.
        pruned: it is whole, on the master alone, and is fetched when it is loaded; of a save of several
            machines this one's `shards` are here.
        waits: it is this machine's part of a save, and waits for the others on the master.
    """

    name: str
    step: int
    whole: bool
    path: Path
    shards: int
    world: int
    missing: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    size: int = 0
    order: int = 0
    pruned: bool = False
    waits: bool = False

    def __str__(self) -> str:
        what = folder_name(self.name, self.step).removesuffix(FOLDER_ENDING)
        if self.pruned:
            here = f"; {self.shards} of {self.world} shards are here, too" if self.shards else " alone"
            return f"{what}: whole, on the master{here}"
        if self.whole:
            return f"{what}: whole, {self.world} shards"
        if not self.world:
            return f"{what}: no shard is there"
        if self.waits:
            return f"{what}: {self.shards} of {self.world} shards, which wait for the others on the master"
        ranks = ", ".join(map(str, self.missing[:20])) + (", …" if self.missing[20:] else "")
        hosts = f" ({', '.join(self.hosts)})" if self.hosts else ""
        return f"{what}: {self.shards} of {self.world} shards; missing: rank {ranks}{hosts}"


def sharded_status(folder: Path, name: str | None = None) -> list[ShardedStatus]:
    """The sharded checkpoints of one name (None: of all), whole ones first, each sort by age.

    Raises:
        OSError: the folder cannot be read.
    """
    found = whole_status(folder, name)
    for parts in parts_of(folder):
        told = parse_parts_name(parts)
        if told is not None and name in {None, told[0]}:
            with suppress(FileNotFoundError):  # published, or superseded, just now
                found.append(_unfinished(folder, parts, told[0], told[1]))
    return found


def whole_status(folder: Path, name: str | None = None) -> list[ShardedStatus]:
    """Those of `sharded_status` that are whole and have their final name; by the order of their saves.

    Raises:
        OSError: the folder cannot be read.
    """
    found = []
    for final in finals_of(folder):
        parsed, path = parse_folder_name(final), folder / final
        if parsed is None or name not in {None, parsed[0]}:
            continue
        whole, note = read_whole(path), note_of_whole(path)
        if whole is not None:
            count = whole.save.world
            found.append(ShardedStatus(*parsed, True, path, count, count, size=whole.size, order=whole.order))
        elif note is not None:
            size = sum(part.size for _, part in pruned_parts(path))
            own = [receipt for receipt in receipts_in(path) if receipt.beside and _is_here(path, receipt)]
            count, world = len(own), own[0].save.world if own else 0
            size += sum(entry.size for receipt in own for entry in receipt.files)
            found.append(
                ShardedStatus(
                    *parsed, True, path, count, world, size=size, order=note.order or 0, pruned=True
                )
            )
    return sorted(found, key=lambda one: one.order)


def _unfinished(folder: Path, parts: str, name: str, step: int) -> ShardedStatus:
    here, found = folder / PARTS_FOLDER / parts, look(folder, parts)
    if found.whole is not None:
        count, order = found.whole.save.world, found.whole.order
        return ShardedStatus(name, step, True, here, count, count, size=found.whole.size, order=order)
    notes = _notes(here)
    worlds = [receipt.save.world for receipt in found.receipts.values()] + [one.world for one in notes]
    world = max(worlds, default=0)
    incomplete = {*found.missing, *(rank for rank in range(world) if rank not in found.receipts)}
    missing = sorted(rank for rank in incomplete if rank < world)
    hosts = dict.fromkeys(note.host for note in notes if note.rank in missing)
    return ShardedStatus(
        name, step, False, here, world - len(missing), world, tuple(missing), tuple(hosts),
        waits=found.marked,
    )  # fmt: skip


def _is_here(path: Path, receipt: Receipt) -> bool:
    """Whether a rank's files are in the folder of a checkpoint."""
    return all(os.path.lexists(path / entry.file) for entry in receipt.files)


def _notes(here: Path) -> list[PlanNote]:
    found = []
    with suppress(FileNotFoundError):
        for entry in sorted((here / OWN_FOLDER).iterdir()):
            if entry.name.startswith("plan-"):
                with suppress(OSError, RemoteProtocolError, BrokenFileError, NotAFileError):
                    found.append(PlanNote.decode(read_small(entry, MAX_NOTE_BYTES)))
    return found
