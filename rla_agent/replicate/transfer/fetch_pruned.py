"""Return of a pruned file from the master.

The note beside it (`rla_client.contract.checkpoint.prune_notes`) says which master has it, under which name,
and its SHA-256. It is written under a temp name, hashed, given its old time and permissions (no more than the
master's file and its folder here have), and only then takes its name, if nothing else has it by then; then
the note goes. A fetch that was cut off continues where it stopped. Two of the same file wait for each
other. Nothing that the master says becomes a name, and no more than the noted size is read.
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

from rla_agent.replicate import registry, targets
from rla_agent.replicate.backend.target import Session
from rla_agent.replicate.transfer.fetch_file import fill
from rla_agent.replicate.transfer.fetched_modes import fetched_mode
from rla_agent.replicate.transfer.room import NoRoomError
from rla_agent.replicate.worker.source_file import fingerprint_of
from rla_client.config.schema import load_config
from rla_client.contract.checkpoint.prune_notes import PrunedFile, drop_note, read_note
from rla_client.contract.checkpoint.sharded_pruned import pruned_parts
from rla_client.contract.checkpoint.sharded_publish import read_whole
from rla_client.contract.errors import FetchError, RlaError
from rla_client.contract.filesystem.atomic_write import claim_name
from rla_client.contract.filesystem.modes import give_mode
from rla_client.contract.filesystem.safe_paths import FOLDER_FLAGS
from rla_client.contract.process.descriptors import closing_fd
from rla_client.contract.process.locks import wait_for_lock
from rla_client.contract.safe_names import check_relative

PARTIAL_PREFIX: Final = ".rla-tmp-fetch-"
_PARTIAL: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def fetch_back(state: Path, folder: str, name: str, config: str | None) -> int:
    """Bring one pruned file back into a folder (absolute).

    `config`: an rla_config.yaml that may name the master, beside those of the known databases.

    Returns:
        Bytes fetched; 0 when it is here already.

    Raises:
        FetchError: no note, no way to the master, or the master's copy is not what was sent.
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


def fetch_sharded_back(state: Path, path: Path, config: str | None) -> int:
    """Bring what is pruned of a sharded checkpoint back into its folder (absolute), `whole.json` last.

    Returns:
        Bytes that came; 0 where all of it is here already.

    Raises:
        FetchError, TargetError, OSError: as `fetch_back`; it is not whole here then.
    """
    parts = pruned_parts(path)
    if not parts:
        if read_whole(path) is not None:
            return 0
        raise FetchError(f"{path} is neither here nor noted as being on the master")
    for _, note in parts:
        check_relative(note.path, what="the note's path")
    with closing(_target(state, str(path), parts[-1][1], config).open()) as session:
        return sum(fetch_noted(session, str(folder), note) for folder, note in parts)


def _target(state: Path, folder: str, note: PrunedFile, config: str | None) -> targets.Target:
    """The master that a note names, opened as a config here says; else where its database goes now.

    The master may have got another address since; the file's SHA-256 tells whether it is the right one.
    """
    entries = registry.listed(state)
    faults, others = [*filter(None, [registry.registry_problem(state)])], []
    for source in dict.fromkeys([*([config] if config else []), *(entry.config for entry in entries)]):
        try:
            found = targets.target(load_config(source), registry.folder(state))
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


def fetch_noted(session: Session, folder: str, note: PrunedFile) -> int:
    """Put the file of a note back into `folder`; see `fetch_back`."""
    path = os.fsencode(note.path)
    with (
        closing_fd(os.open(folder, FOLDER_FLAGS)) as place,
        _partial(place, note) as (partial, descriptor),
    ):
        if os.path.exists(os.path.join(folder, note.name)):
            os.unlink(partial, dir_fd=place)
            return 0  # somebody else has brought it meanwhile
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
