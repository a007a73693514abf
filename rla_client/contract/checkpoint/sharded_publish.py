"""Publication of sharded checkpoints.

Anybody may publish at any time: a rank that wrote its receipt, who loads, `rla verify --fix`. What is to be
done follows from the files alone (`next_step`), each step is atomic, and doing it twice changes nothing:

1. all receipts of one save are there, and the sizes of their files are as they say;
2. rank 0's `.metadata` takes its name (its bytes are never interpreted);
3. `whole.json` is written: **from here on the checkpoint is complete**;
4. the folder takes its final name. An older one of that name moves into `.rla-parts` first, and goes then.

Each step is durable before the next one. A kill between any two leaves the former checkpoints as they were,
and the next publisher goes on. Saves that the fence keeps out move to `.rla-parts/abandoned-N/`: who still
writes into such a folder finds that it is gone.

Where the ranks of a job have several data roots, none of them gets all parts. What all ranks of one machine
have written is marked by `part.json`, for its agent to send. Publication then happens on the master, in the
same steps; here the save gets its name by `finish_on_master`, as a checkpoint of which some files, and
`whole.json`, are on the master.

Who publishes, removes or raises the fence holds LOCK_FILE meanwhile. With a look of before another one did
that, it would put a newer checkpoint away for an older one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rla_client.contract.checkpoint.prune_notes import PrunedFile, write_note
from rla_client.contract.checkpoint.sharded_files import (
    FENCE_FILE,
    LOCK_FILE,
    MAX_RECEIPT_BYTES,
    MAX_WHOLE_BYTES,
    METADATA,
    OWN_FOLDER,
    PART_FILE,
    PART_NAME,
    STAGED_METADATA,
    WHOLE_FILE,
    WHOLE_NAME,
    Fence,
    KeptFile,
    MachinePart,
    Receipt,
    Whole,
    folder_name,
    is_only_of_the_making,
    parse_folder_name,
    parse_parts_name,
    parts_name,
    receipt_rank,
)
from rla_client.contract.checkpoint.sharded_pruned import note_of_whole
from rla_client.contract.errors import BrokenFileError, NotAFileError, RemoteProtocolError
from rla_client.contract.filesystem.atomic_write import TEMP_PREFIX, fsync_folder, write_atomic
from rla_client.contract.filesystem.modes import file_mode
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.filesystem.safe_paths import held_folder
from rla_client.contract.layout import PARTS_FOLDER
from rla_client.contract.process.descriptors import closing_fd, open_high
from rla_client.contract.process.locks import try_lock

REPLACED_PREFIX: Final = f"{TEMP_PREFIX}replaced-"  # of folders of PARTS_FOLDER that are about to be deleted
NO_CHECKPOINT: Final = -1
PUBLISHER_S: Final = 30.0  # one may delete a large checkpoint, or be suspended
_NO_LOCKS: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})  # of the file system
UNREADABLE = (OSError, RemoteProtocolError, BrokenFileError, NotAFileError)


class Step(Enum):
    """What a publisher does next with a save in the making."""

    WAIT = "not all parts are here"
    MARK_PART = "this machine's are, and `part.json` is written"
    ABANDON = "it belongs to an earlier opening of the run"
    PUT_METADATA = "`.metadata` takes its name"
    WRITE_WHOLE = "`whole.json` is written"
    PUT_AWAY_OLDER = "an older checkpoint makes way"
    SET_ASIDE = "something else has the final name"
    DISCARD = "a newer checkpoint has the final name"
    TAKE_NAME = "the folder takes its final name"


@dataclass(frozen=True, slots=True)
class Found:
    """What lies in the folder of a save in the making, and under its final name.

    Attributes:
        token: of the folder's name.
        receipts: by rank, those that are readable and name this token.
        sizes: of the files that receipts name, `.metadata` and STAGED_METADATA among them; no entry where
            there is no such plain file.
        whole: of the save itself; None as long as it is not complete.
        holder: of the checkpoint that has the final name, its order; NO_CHECKPOINT: something else has the
            name; None: nothing has it.
        fence: None where there is none.
        marked: `part.json` is there.
    """

    token: str
    receipts: Mapping[int, Receipt]
    sizes: Mapping[str, int]
    whole: Whole | None = None
    holder: int | None = None
    fence: Fence | None = None
    marked: bool = False

    @property
    def beside(self) -> tuple[int, ...]:
        """The ranks of one machine, where others write into other data roots; else empty."""
        told = {receipt.beside for receipt in self.receipts.values()}
        return told.pop() if len(told) == 1 else ()

    @property
    def is_machines_part(self) -> bool:
        """Whether all is here that this machine's ranks write, and others write elsewhere."""
        return bool(self.beside) and all(self._is_here(rank) for rank in self.beside)

    @property
    def missing(self) -> list[int]:
        """Ranks whose parts are not here, or not as their receipts say; all where nobody knows how many."""
        world = next((receipt.save.world for receipt in self.receipts.values()), 1)
        return [rank for rank in range(world) if not self._is_here(rank)]

    @property
    def agrees(self) -> bool:
        """Whether all receipts are of one save, planned alike."""
        return len({receipt.save for receipt in self.receipts.values()}) == 1

    def _is_here(self, rank: int) -> bool:
        receipt = self.receipts.get(rank)
        if receipt is None or (rank == 0) != (receipt.metadata is not None):
            return False
        here = all(self.sizes.get(entry.file) == entry.size for entry in receipt.files)
        if receipt.metadata is None or not here:
            return here
        return receipt.metadata.size in {self.sizes.get(METADATA), self.sizes.get(STAGED_METADATA)}


def next_step(found: Found) -> Step:
    """What to do with a save in the making; see the module's text."""
    saves = [receipt.save for receipt in found.receipts.values()]
    if found.whole is not None:
        saves = [found.whole.save]
    if found.fence is not None and any(found.fence.keeps_out(save) for save in saves):
        return Step.ABANDON
    if found.whole is None:
        if not found.receipts or not found.agrees or found.missing:
            mark = found.agrees and found.is_machines_part and not found.marked
            return Step.MARK_PART if mark else Step.WAIT
        zero = found.receipts[0].metadata
        placed = zero is not None and found.sizes.get(METADATA) == zero.size
        return Step.WRITE_WHOLE if placed else Step.PUT_METADATA
    if found.holder is None:
        return Step.TAKE_NAME
    if found.holder == NO_CHECKPOINT:
        return Step.SET_ASIDE
    return Step.PUT_AWAY_OLDER if found.holder < found.whole.order else Step.DISCARD


def whole_of(receipts: Mapping[int, Receipt]) -> Whole:
    """The `whole.json` that all receipts of a save make together."""
    zero = receipts[0]
    assert zero.metadata is not None
    files = sorted(
        (entry for receipt in receipts.values() for entry in receipt.files), key=lambda entry: entry.file
    )
    metadata = KeptFile(METADATA, zero.metadata.size, zero.metadata.sha256)
    return Whole(zero.save, zero.order, tuple(files), metadata, zero.metrics)


# -- files ----------------------------------------------------------------------------------------


def publish(folder: Path, parts: str) -> Whole | None:
    """Bring a save as far as it can be brought; can be repeated, by several at once.

    Args:
        folder: the run's checkpoint folder.
        parts: name of the save's folder in PARTS_FOLDER.

    Returns:
        What it says of itself, once it is complete; None before that, and of one that is gone.

    Raises:
        OSError: a step could not be done; what is there stays, and the next call tries again.
    """
    parsed = parse_parts_name(parts)
    if parsed is None:
        return None
    final = folder_name(parsed[0], parsed[1])
    with (
        suppress(FileNotFoundError, NotADirectoryError),
        held_folder(folder, PARTS_FOLDER) as above,
        _alone(above),
    ):
        while True:
            found = look(folder, parts)
            step = next_step(found)
            if step is Step.WAIT:
                return None
            _carry_out(step, found, folder, above / parts)
            if step is Step.ABANDON:
                return None
            if step is Step.DISCARD:
                return found.whole
    return _whole_under(folder, final, parsed[2])  # it has its name, by us or by another publisher


@contextmanager
def _alone(above: Path) -> Iterator[None]:
    """Hold the lock of PARTS_FOLDER; on a file system that has none, go on without.

    The lock is of a file, and not of the folder: over NFS only that holds on other machines, too.

    Raises:
        BlockingIOError: another one has it for PUBLISHER_S.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with closing_fd(open_high(above / LOCK_FILE, flags, file_mode(above))) as descriptor:
        try:
            if not try_lock(descriptor, timeout_s=PUBLISHER_S):
                why = f"another process has held the lock for {PUBLISHER_S:g} s"
                raise BlockingIOError(errno.EAGAIN, why)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        yield


def _carry_out(step: Step, found: Found, folder: Path, here: Path) -> None:
    """Do one step, durably; `here` is the folder of the save in the making."""
    above, whole = here.parent, found.whole
    if step is Step.ABANDON:
        abandon(above, above, here.name)
    elif step is Step.PUT_METADATA:
        _put_metadata(here)
    elif step is Step.MARK_PART:
        with held_folder(folder, f"{PARTS_FOLDER}/{here.name}/{OWN_FOLDER}") as own:
            part = MachinePart(next(iter(found.receipts.values())).save, found.beside)
            write_atomic(own / PART_NAME, part.encode())
    elif step is Step.WRITE_WHOLE:  # in this very folder, also where another publisher renames it now
        with held_folder(folder, f"{PARTS_FOLDER}/{here.name}/{OWN_FOLDER}") as own:
            write_atomic(own / WHOLE_NAME, whole_of(found.receipts).encode())
    elif step is Step.DISCARD:
        os.rename(here, _going(above))
        _remove_replaced(above)
    else:
        assert whole is not None, step
        final = folder_name(whole.save.name, whole.save.step)
        if step is Step.SET_ASIDE:
            abandon(folder, folder, final)
        elif step is Step.PUT_AWAY_OLDER:
            os.rename(folder / final, _going(above))
        elif _take_name(here, folder / final):
            with suppress(FileNotFoundError):  # where the master's own folder is
                os.unlink(folder / final / PART_FILE)
            fsync_folder(folder)
            fsync_folder(above)
            _remove_replaced(above)


def came_whole(folder: Path, parts: str) -> bool:
    """Whether a save is complete, here or on the master; what can be done for it here is done first.

    Raises:
        OSError: as `publish`.
    """
    if os.path.lexists(folder / PARTS_FOLDER / parts / PART_FILE):
        return False  # the agent sends it, and gives it its name
    parsed = parse_parts_name(parts)
    if parsed is None:
        return False
    final = folder / folder_name(parsed[0], parsed[1])
    return publish(folder, parts) is not None or _is_of(final, parsed[2])


def finish_on_master(
    folder: Path,
    content: bytes,
    below: str,
    target: str,
    *,
    times: Mapping[str, int] = MappingProxyType({}),
    create: bool = False,
) -> str | None:
    """Give a save that is whole on the master its name here, too: it is a pruned one from then on.

    What is here of it stays. Notes say of the other files, and last of `whole.json`, where they are; a power
    cut may take all of these but the last one. Can be repeated, by several at once, after a kill at any step.

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
        _alone(above),
    ):
        while not _is_named(folder / final, whole):
            with held_folder(folder, f"{PARTS_FOLDER}/{parts}/{OWN_FOLDER}", create=create) as own:
                _note_rest(above / parts, own, whole, PrunedFile(
                    f"{below}/{final}/{WHOLE_FILE}", len(content), hashlib.sha256(content).hexdigest(),
                    times.get(WHOLE_FILE, whole.order), target, time.time(), order=whole.order,
                ), times)  # fmt: skip
            found = replace(
                look(folder, parts), whole=whole, fence=None
            )  # it is whole, whoever is fenced off
            step = next_step(found)
            _carry_out(step, found, folder, above / parts)
            if step is Step.DISCARD:
                return None
    if not _is_named(folder / final, whole):
        return None
    with suppress(FileNotFoundError):  # of a kill right after the folder had its name
        os.unlink(folder / final / PART_FILE)
    return final


def _note_rest(here: Path, own: Path, whole: Whole, mark: PrunedFile, times: Mapping[str, int]) -> None:
    """Note what is not here of a save that is whole on the master; `mark`: the note of its `whole.json`."""
    _put_metadata(here)
    there = mark.path.removesuffix(WHOLE_FILE)
    for entry in (*whole.files, whole.metadata):
        if not os.path.lexists(here / entry.file):
            note = replace(mark, path=there + entry.file, size=entry.size, sha256=entry.sha256, order=None)
            note = replace(note, mtime_ns=times.get(entry.file, note.mtime_ns))
            write_note(here, note, durable=False)
    for name in os.listdir(own):
        if is_only_of_the_making(name) and name != PART_NAME:  # that one has the agent look here again
            os.unlink(own / name)
    write_note(own, mark)


def publish_all(folder: Path) -> list[Whole]:
    """Bring each save of a checkpoint folder as far as it can be brought; what became complete of it now.

    Raises:
        OSError: a step could not be done.
    """
    found = [publish(folder, name) for name in parts_of(folder)]
    return [whole for whole in found if whole is not None]


def raise_fence(folder: Path, run: str, epoch: int) -> None:
    """Let nothing be published from now on but saves of this opening of the run; others are abandoned.

    What all ranks had finished before is published first.

    Raises:
        OSError: that could not be done.
    """
    publish_all(folder)
    with held_folder(folder, PARTS_FOLDER, create=True) as above, _alone(above):
        former = read_fence(folder)
        if former is not None and former.run == run and former.epoch >= epoch:
            return
        write_atomic(above / FENCE_FILE, Fence(run, epoch).encode())
        fence = Fence(run, epoch)
        for name in parts_of(folder):
            found = look(folder, name)
            saves = [receipt.save for receipt in found.receipts.values()]
            if not saves or any(fence.keeps_out(save) for save in saves):
                abandon(above, above, name)


def read_fence(folder: Path) -> Fence | None:
    """Whose saves may be published in a checkpoint folder; None: anybody's."""
    try:
        return Fence.decode(read_small(folder / PARTS_FOLDER / FENCE_FILE, MAX_RECEIPT_BYTES))
    except UNREADABLE:
        return None


def parts_of(folder: Path) -> list[str]:
    """Names of the saves in the making in a checkpoint folder, sorted."""
    try:
        names = sorted(os.listdir(folder / PARTS_FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if parse_parts_name(name) is not None]


def waiting_parts(folder: Path) -> list[str]:
    """Those of `parts_of` that are this machine's part of a save, and wait for the master."""
    return [name for name in parts_of(folder) if os.path.lexists(folder / PARTS_FOLDER / name / PART_FILE)]


def finals_of(folder: Path) -> list[str]:
    """Names of the folders with the name of a whole checkpoint, sorted."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if parse_folder_name(name) is not None and not name.startswith(".")]


def look(folder: Path, parts: str) -> Found:
    """What there is of a save in the making.

    Raises:
        FileNotFoundError: its folder is not there (any more).
        OSError: it cannot be read.
    """
    parsed = parse_parts_name(parts)
    assert parsed is not None, parts
    name, step, token = parsed
    with held_folder(folder, f"{PARTS_FOLDER}/{parts}") as here:
        receipts = _receipts(here, name, step, token)
        whole = read_whole(here)
        if whole is not None and whole.save.token != token:
            whole = None
        marked = os.path.lexists(here / PART_FILE)
        files = {METADATA, STAGED_METADATA}
        files.update(entry.file for receipt in receipts.values() for entry in receipt.files)
        sizes = dict(_sizes(here, files))
    final = folder / folder_name(name, step)
    holder = None
    if os.path.lexists(final):
        there: Whole | PrunedFile | None = read_whole(final) or note_of_whole(final)
        holder = NO_CHECKPOINT if there is None or there.order is None else there.order
    return Found(token, receipts, sizes, whole, holder, read_fence(folder), marked)


def read_whole(path: Path) -> Whole | None:
    """What a checkpoint's folder says of itself; None where it is not complete."""
    try:
        return Whole.decode(read_small(path / WHOLE_FILE, MAX_WHOLE_BYTES))
    except UNREADABLE:
        return None


def remove(folder: Path, parts: str) -> None:
    """Delete a save in the making; it is gone under its name at once, or not at all.

    Raises:
        OSError: it could not be renamed.
    """
    with suppress(FileNotFoundError), held_folder(folder, PARTS_FOLDER) as above:
        with _alone(above):
            os.rename(above / parts, _going(above))
        _remove_replaced(above)


def remove_final(folder: Path, final: str, token: str) -> None:
    """Delete the checkpoint that has a name, if it is that of a save; it is gone at once, or not at all.

    A newer one of its time-step, which took the name meanwhile, stays.

    Raises:
        OSError: it could not be renamed.
    """
    with held_folder(folder, PARTS_FOLDER, create=True) as above:
        with _alone(above):
            if _is_of(folder / final, token):
                os.rename(folder / final, _going(above))
        _remove_replaced(above)


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


def _receipts(here: Path, name: str, step: int, token: str) -> dict[int, Receipt]:
    return {
        receipt.rank: receipt
        for receipt in receipts_in(here)
        if (receipt.save.token, receipt.save.name, receipt.save.step) == (token, name, step)
    }


def receipts_in(path: Path) -> Iterator[Receipt]:
    """The receipts in a checkpoint's folder that can be read."""
    with suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.listdir(path / OWN_FOLDER):
            rank = receipt_rank(entry)
            if rank is None:
                continue
            with suppress(*UNREADABLE):
                receipt = Receipt.decode(read_small(path / OWN_FOLDER / entry, MAX_RECEIPT_BYTES))
                if receipt.rank == rank:
                    yield receipt


def _sizes(here: Path, files: Iterable[str]) -> Iterator[tuple[str, int]]:
    for file in files:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(here / file)
            if stat.S_ISREG(found.st_mode):
                yield file, found.st_size


def _put_metadata(here: Path) -> None:
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


def _is_of(path: Path, token: str) -> bool:
    """Whether a folder is the whole checkpoint of a save, also where only the master has all of it."""
    whole = read_whole(path)
    if whole is not None:
        return whole.save.token == token
    told = note_of_whole(path) is not None
    return told and any(receipt.save.token == token for receipt in receipts_in(path))


def _is_named(final: Path, whole: Whole) -> bool:
    """Whether the final name is that of this save, with `whole.json` or a note of it."""
    found: Whole | PrunedFile | None = read_whole(final) or note_of_whole(final)
    return found is not None and found.order == whole.order


def _going(above: Path) -> Path:
    """A name for a folder that is about to be deleted."""
    return above / f"{REPLACED_PREFIX}{os.urandom(8).hex()}"


def _remove_replaced(above: Path) -> None:
    """Delete what made way, also what a killed publisher left."""
    with suppress(OSError):
        for entry in os.listdir(above):
            if entry.startswith(REPLACED_PREFIX):
                shutil.rmtree(above / entry, ignore_errors=True)
