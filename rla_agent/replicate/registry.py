"""Registry of replicated databases.

`<state>/replicate/databases.json` is written here and read by the worker. One entry per (data root,
config): `{"data_root", "config", "added_by": "run" | "user", "off": [items]}`. `run`: a run was opened with
that config, and only items whose `run.json` names this host go. `user`: `rla-agent replicate add`; every
item goes. Writers hold a lock file: the agent never waits for it, a command for ADD_WAIT_S.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.trusted_paths import make_private
from rla_client.contract.process.locks import holder_pid, try_lock

MAX_DATABASES: Final = 10_000
ADD_WAIT_S: Final = 10.0  # others keep the lock only for one small file's sync
MAX_OFF: Final = 10_000  # runs of one database with is_master_node=True
_NO_LIST: Final = (ValueError, KeyError, TypeError, AttributeError)
log = logging.getLogger("rla_agent.replicate.registry")


class ListBusyError(RlaError):
    """Another process changes the list of databases; nothing was done."""


class UnreadableListError(RlaError):
    """The list of databases cannot be read now; no database may be treated as not replicated."""


@dataclass(frozen=True, slots=True)
class RegisteredDatabase:
    """One database. `off`: items (`table/YYYY/MM/DD/name`) whose run switched replication off."""

    data_root: str
    config: str
    added_by: Literal["run", "user"]
    off: tuple[str, ...] = ()


def folder(state: Path) -> Path:
    """The replicator's part of the state folder, made if need be."""
    path = state / "replicate"
    make_private(path)
    return path


def entries(state: Path) -> list[RegisteredDatabase]:
    """All databases; none where there is no list.

    Raises:
        UnreadableListError: the list cannot be read.
    """
    try:
        return _read_entries(state)
    except FileNotFoundError:
        return []
    except (OSError, *_NO_LIST) as error:
        why = error.strerror if isinstance(error, OSError) else repr(error)
        path = state / "replicate" / "databases.json"
        raise UnreadableListError(f"{path}, the list of databases, cannot be read: {why}") from error


def registry_problem(state: Path) -> str:
    """Why the list of databases cannot be read; empty where it can."""
    try:
        entries(state)
    except UnreadableListError as error:
        return str(error)
    return ""


def listed(state: Path) -> list[RegisteredDatabase]:
    """All databases; an unreadable list counts as empty, which suits callers that only want details."""
    try:
        return entries(state)
    except UnreadableListError:
        return []


def _read_entries(state: Path) -> list[RegisteredDatabase]:
    found = json.loads((state / "replicate" / "databases.json").read_bytes())
    return [
        RegisteredDatabase(**{**entry, "off": tuple(entry.get("off", ()))}) for entry in found["databases"]
    ]


def register(
    state: Path,
    data_root: str | os.PathLike[str],
    config: str | os.PathLike[str],
    item: str | None = None,
    *,
    is_master_node: bool = False,
) -> None:
    """Replicate the database of a run that was opened; never waits for a lock.

    Args:
        state: the agent's state folder.
        data_root: absolute.
        config: absolute path of the YAML file that the run was configured with.
        item: `table/YYYY/MM/DD/name` of the run.
        is_master_node: the run asked not to be replicated.

    Raises:
        ListBusyError: try again later.
        OSError: likewise; the list cannot be written now.
    """
    root, source = os.path.abspath(data_root), os.path.abspath(config)
    off = item if is_master_node else None
    known = [entry for entry in listed(state) if (entry.data_root, entry.config) == (root, source)]
    if known and (off is None or any(off in entry.off for entry in known)):
        return
    with _changing(state, 0.0) as entries:
        _merge(entries, RegisteredDatabase(root, source, "run", (off,) if off else ()))


def add(state: Path, data_root: str | os.PathLike[str], config: str | os.PathLike[str]) -> RegisteredDatabase:
    """`rla-agent replicate add`: every item of a database goes, whoever made it.

    Raises:
        ArgumentError: there is no such folder or file.
        ListBusyError: another process holds the list.
    """
    root, source = os.path.abspath(data_root), os.path.abspath(config)
    if not os.path.isdir(root):
        raise ArgumentError(
            f"{root} is not a folder; give the data root, the folder that holds log/, code/ and so on"
        )
    if not os.path.isfile(source):
        raise ArgumentError(f"{source} is not a file; give the rla_config.yaml with its REMOTE_SETTING")
    entry = RegisteredDatabase(root, source, "user")
    with _changing(state, ADD_WAIT_S) as entries:
        _merge(entries, entry)
    return entry


def _merge(entries: list[RegisteredDatabase], entry: RegisteredDatabase) -> None:
    for number, old in enumerate(entries):
        if (old.data_root, old.config) == (entry.data_root, entry.config):
            by: Literal["run", "user"] = "user" if "user" in {old.added_by, entry.added_by} else "run"
            off = tuple(dict.fromkeys((*old.off, *entry.off)))[-MAX_OFF:]
            entries[number] = replace(old, added_by=by, off=off)
            return
    entries.append(entry)
    del entries[:-MAX_DATABASES]


@contextmanager
def _changing(state: Path, wait_s: float) -> Iterator[list[RegisteredDatabase]]:
    place = folder(state)
    path = place / "databases.lock"
    with path.open("w") as lock:
        if not try_lock(lock.fileno(), timeout_s=wait_s):
            pid = holder_pid(lock.fileno()) if wait_s else None  # the kernel's list may be long
            who = f"process {pid}" if pid else "another process"
            raise ListBusyError(
                f"{who} holds {path}, the lock of the list of databases; nothing was changed. End it or, if "
                "it is suspended, resume it (kill -CONT), then try again"
            )
        entries = _entries_to_change(place / "databases.json", state)
        yield entries
        text = json.dumps({"version": 1, "databases": [asdict(entry) for entry in entries]}, indent=1)
        write_atomic(place / "databases.json", text.encode(), mode=0o600)


def _entries_to_change(path: Path, state: Path) -> list[RegisteredDatabase]:
    """All databases; a list without meaning is put aside.

    Raises:
        OSError: it cannot be read now; a caller that treated it as empty would overwrite it.
    """
    try:
        return _read_entries(state)
    except FileNotFoundError:
        return []
    except _NO_LIST as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        log.warning(
            "the list of replicated databases was damaged (%r) and is replaced by an empty one: look at %s, "
            "and add what is missing: rla-agent replicate add",
            *(error, aside),
        )
        return []
