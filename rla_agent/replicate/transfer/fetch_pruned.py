"""Return of a pruned file from the master.

Its note (`rla_client.contract.item.prune_notes`) has the master, the name there, and the SHA-256. The file is
written under a temp name, hashed, given its old time and permissions (no more than those of the master's file
and its folder here), and only then takes its name, unless another file has it by then; then the note is
deleted. An interrupted fetch continues where it stopped. Two fetches of one file wait for each other. No more
than the noted size is read. No answer of the master becomes a name, except those of the shards in a
`whole.json`, which are checked.

A sharded checkpoint of a run of several machines that was never here gets its notes from the master's
`whole.json`; so do files whose notes were lost in a power cut.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Final

from rla_agent.replicate import registry, target_config
from rla_agent.replicate.backend.session import TargetSession, listing_or_empty
from rla_agent.replicate.transfer.fetch_file import fill
from rla_agent.replicate.transfer.fetched_modes import fetched_mode
from rla_agent.replicate.transfer.local_room import NoRoomError
from rla_agent.replicate.worker.sharded_master import PartLook, look_all
from rla_agent.replicate.worker.source_file import fingerprint_of
from rla_client.config.schema import load_config
from rla_client.contract.errors import FetchError, NotOnMasterError, RemoteProtocolError, RlaError
from rla_client.contract.filesystem.atomic_write import claim_name
from rla_client.contract.filesystem.modes import give_mode
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS
from rla_client.contract.item.prune_notes import PrunedFile, drop_note, read_note, write_note
from rla_client.contract.layout import CHECKPOINT
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import wait_for_lock
from rla_client.contract.safe_names import check_relative
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE, folder_name
from rla_client.contract.sharded_checkpoint.finish import finish_on_master
from rla_client.contract.sharded_checkpoint.folder import read_whole, waiting_parts
from rla_client.contract.sharded_checkpoint.pruned import note_of_whole, pruned_parts
from rla_client.contract.sharded_checkpoint.records import MAX_WHOLE_BYTES, Whole

PARTIAL_PREFIX: Final = ".rla-tmp-fetch-"
_PARTIAL: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def fetch_back(state: Path, folder: str, name: str, config: str | None) -> int:
    """Fetch one pruned file back into a folder (absolute).

    `config`: an rla_config.yaml that may name the master, beside those of the known databases.

    Returns:
        Bytes fetched; 0 when it is here already.

    Raises:
        FetchError: no note, no route to the master, or the master's copy differs from the sent one.
        TargetError: the master cannot be reached.
        OSError: it cannot be written.
    """
    if len(check_relative(name, what="the file's name")) != 1:
        raise FetchError(f"{name!r} is not a file name")
    note = read_note(folder, name)
    if note is None:
        if os.path.exists(os.path.join(folder, name)):
            return 0
        raise FetchError(f"{os.path.join(folder, name)} is neither here nor noted as being on the master")
    check_relative(note.path, what="the note's path")
    with closing(_target(state, folder, note, config).open()) as session:
        return fetch_noted(session, folder, note)


def fetch_sharded_back(
    state: Path, path: Path, config: str | None, *, root: str | None = None, order: int | None = None
) -> int:
    """Fetch the missing files of a sharded checkpoint into its folder, `whole.json` last.

    Args:
        state: the agent's state folder.
        path: of the checkpoint, absolute.
        config: as in `fetch_back`.
        root: its data root, where none of its files is here; None: the known database that it is in.
        order: of its save, where that is known: another save of its name is replaced.

    Returns:
        Fetched bytes; 0 where all of it is here already.

    Raises:
        FetchError, TargetError, OSError: as `fetch_back`; it is not whole here then.
    """
    here: Whole | PrunedFile | None = read_whole(path) or note_of_whole(path)
    if here is None or order not in {None, here.order}:
        target, data_root = _home(state, path, config, root)
        with closing(target.open()) as session:
            _note_from_master(session, path, data_root, target.name, order)
    mark = note_of_whole(path)
    parts = pruned_parts(path)
    if not parts:
        return 0
    for _, note in parts:
        check_relative(note.path, what="the note's path")
    with closing(_target(state, str(path), parts[-1][1], config).open()) as session:
        if mark is not None:
            _note_rest(session, path, mark)
        return sum(fetch_noted(session, str(folder), note) for folder, note in pruned_parts(path))


def settle_parts(state: Path, folder: Path, config: str | None) -> None:
    """Check whether saves of several machines are complete on the master; then they get their names here.

    Args:
        state: the agent's state folder.
        folder: of the run's checkpoints, absolute.
        config: as in `fetch_back`.

    Raises:
        FetchError, TargetError: the master cannot be asked.
    """
    target, root = _home(state, folder / "x", config, None)
    item = os.fsencode(_below(root, folder))
    looks = [PartLook(folder, item, parts, target.name, replaces=False) for parts in waiting_parts(folder)]
    with closing(target.open()) as session:
        look_all(session, looks, [])


def _home(state: Path, path: Path, config: str | None, root: str | None) -> tuple[target_config.Target, str]:
    """Place on the master of a checkpoint without notes, and its data root here."""
    entry = next((one for one in registry.listed(state) if _holds(one, str(path))), None)
    if entry is not None:
        config, root = entry.config, entry.data_root
    if config is None or root is None:
        raise FetchError(f"{path} is neither here nor noted as being on the master")
    return target_config.target(load_config(config), registry.folder(state)), root


def _below(root: str, path: Path) -> str:
    """Path of a checkpoint, or its folder, below the data root."""
    below = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    if not below.startswith(f"{CHECKPOINT}/"):
        raise FetchError(f"{path} is no sharded checkpoint of {root}")
    return below


def _note_from_master(session: TargetSession, path: Path, root: str, target: str, order: int | None) -> None:
    """Make a whole checkpoint of the master a pruned one here.

    Raises:
        NotOnMasterError: there is none, or that of an earlier save: this one may be on its way.
        FetchError, TargetError, OSError: as `fetch_back`; also where that of a later save stays there.
    """
    below = _below(root, path)
    files = {os.fsdecode(name): one for name, one in listing_or_empty(session, os.fsencode(below))}
    mark = session.stat(os.fsencode(f"{below}/{WHOLE_FILE}"))
    if mark is None or mark.size > MAX_WHOLE_BYTES:
        raise NotOnMasterError(f"{below} is not whole on the master {target}")
    content = session.read(os.fsencode(f"{below}/{WHOLE_FILE}"), 0, mark.size)
    times = {file: state.mtime_s * 10**9 for file, state in {**files, WHOLE_FILE: mark}.items()}
    try:
        whole = Whole.decode(content)
        if folder_name(whole.save.name, whole.save.step) == path.name and order in {None, whole.order}:
            finish_on_master(path.parent, content, os.path.dirname(below), target, times=times, create=True)
    except RemoteProtocolError as error:
        raise FetchError(f"{below}/{WHOLE_FILE} on the master says nothing: {error}") from error
    here: Whole | PrunedFile | None = read_whole(path) or note_of_whole(path)
    if here is None or order not in {None, here.order}:
        kind = FetchError if order is None or whole.order >= order else NotOnMasterError
        raise kind(f"{below} on the master {target} is of another save than was asked for")


def _note_rest(session: TargetSession, path: Path, mark: PrunedFile) -> None:
    """Write notes of a checkpoint's missing files without one; `mark`: the note of its `whole.json`.

    Raises:
        FetchError: the master's `whole.json` is not the noted one.
    """
    content = session.read(os.fsencode(mark.path), 0, mark.size)
    if hashlib.sha256(content).hexdigest() != mark.sha256:
        raise FetchError(f"{mark.path} is on the master with other content than is noted (SHA-256)")
    whole, there = Whole.decode(content), mark.path.removesuffix(WHOLE_FILE)
    for entry in (*whole.files, whole.metadata):
        if not os.path.lexists(path / entry.file) and read_note(path, entry.file) is None:
            note = replace(mark, path=there + entry.file, size=entry.size, sha256=entry.sha256, order=None)
            write_note(path, note)


def _target(state: Path, folder: str, note: PrunedFile, config: str | None) -> target_config.Target:
    """The master in a note, opened by a config of this machine; else the database's present one.

    The master may have another address by now; the file's SHA-256 shows whether it is the right one.
    """
    entries = registry.listed(state)
    faults, others = [*filter(None, [registry.registry_problem(state)])], []
    for source in dict.fromkeys([*([config] if config else []), *(entry.config for entry in entries)]):
        try:
            found = target_config.target(load_config(source), registry.folder(state))
        except RlaError as error:
            faults.append(str(error))
            continue
        if found.name == note.target:
            return found
        if source == config or any(entry.config == source and _holds(entry, folder) for entry in entries):
            others.append(found)
    if others:
        return others[0]
    known = f" ({'; '.join(faults)})" if faults else ""
    raise FetchError(
        f"{note.path} is on {note.target}, and no rla_config.yaml known here names that master{known}; "
        "configure the project with one that does, or: rla pull"
    )


def _holds(entry: registry.RegisteredDatabase, folder: str) -> bool:
    return os.path.realpath(folder).startswith(os.path.realpath(entry.data_root) + os.sep)


def fetch_noted(session: TargetSession, folder: str, note: PrunedFile) -> int:
    """Fetch the file of a note back into `folder`; see `fetch_back`."""
    path = os.fsencode(note.path)
    with (
        closing_fd(os.open(folder, FOLDER_FLAGS)) as place,
        _partial(place, note) as (partial, descriptor),
    ):
        if os.path.exists(os.path.join(folder, note.name)):
            os.unlink(partial, dir_fd=place)
            return 0  # another process has fetched it meanwhile
        found = session.stat(path)
        if found is None or found.kind != "file":
            raise FetchError(f"{note.path} is no longer on the master {note.target}")
        if found.size != note.size:
            raise FetchError(f"{note.path} has {found.size} bytes on the master, not {note.size}")
        try:
            fill(session, descriptor, path, replace(found, size=note.size), lambda *_: None)
        except NoRoomError as error:
            os.unlink(partial, dir_fd=place)
            raise NoRoomError(f"{note.path}: {error}") from error
        came = fingerprint_of(lambda at, count: os.pread(descriptor, count, at), note.size)
        if came.sha256.hex() != note.sha256:
            os.unlink(partial, dir_fd=place)
            raise FetchError(f"{note.path} is on the master with other content than was sent (SHA-256)")
        os.utime(descriptor, ns=(note.mtime_ns, note.mtime_ns))
        told = [mode for mode in (note.mode, found.mode) if mode is not None]
        mode = reduce(and_, told) if told else None
        give_mode(descriptor, fetched_mode(place, note.name, mode))
        os.fsync(descriptor)
        if not claim_name(partial, note.name, dir_fd=place):
            os.unlink(partial, dir_fd=place)
            return 0  # somebody has written a file of that name meanwhile: newer, and the only copy of it
        os.fsync(place)
    drop_note(folder, note.name)
    return note.size


@contextmanager
def _partial(place: int, note: PrunedFile) -> Iterator[tuple[str, int]]:
    """Name and descriptor of the temp file, locked."""
    name = PARTIAL_PREFIX + hashlib.sha256(f"{note.name} {note.sha256}".encode()).hexdigest()[:24]
    while True:
        with closing_fd(os.open(name, _PARTIAL, 0o600, dir_fd=place)) as descriptor:
            wait_for_lock(descriptor)
            named = None
            with suppress(FileNotFoundError):
                named = os.stat(name, dir_fd=place, follow_symlinks=False).st_ino
            if named == os.fstat(descriptor).st_ino:
                yield name, descriptor
                return
