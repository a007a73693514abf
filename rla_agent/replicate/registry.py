"""Which databases are replicated: `<state>/replicate/databases.json`, written here, read by the worker.

One entry per (data root, config): `{"data_root", "config", "added_by": "run" | "user", "off": [items]}`.
`run`: a run was opened with that config, and only items whose `run.json` names this host go.
`user`: `rla-agent replicate add`; every item goes. Secrets are never in it: the worker reads the
config itself. Writers hold a lock file; the worker notices the changed mtime.

Beside it: `paused` (a marker) and `retry` (a marker that the worker takes away).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal

from rla_client.contract.descriptors import wait_for_lock
from rla_client.contract.errors import ArgumentError
from rla_client.contract.files import write_atomic
from rla_client.contract.paths import make_private

MAX_DATABASES: Final = 10_000
MAX_OFF: Final = 10_000  # runs of one database with is_master_node=True


@dataclass(frozen=True, slots=True)
class Entry:
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


def entries(state: Path) -> list[Entry]:
    """All databases; an unreadable file counts as empty."""
    try:
        found = json.loads((state / "replicate" / "databases.json").read_bytes())
        return [Entry(**{**entry, "off": tuple(entry.get("off", ()))}) for entry in found["databases"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def register(
    state: Path,
    data_root: str | os.PathLike[str],
    config: str | os.PathLike[str] | None,
    item: str | None = None,
    *,
    is_master_node: bool = False,
) -> bool:
    """A run was opened: replicate its database from now on.

    Args:
        state: the agent's state folder.
        data_root: absolute.
        config: absolute path of the YAML file that the run was configured with; None for a dict,
            which cannot be replicated from (it may hold no password).
        item: `table/YYYY/MM/DD/name` of the run.
        is_master_node: the run asked not to be replicated.

    Returns:
        Whether something new was written.
    """
    if config is None:
        return False
    root, source = os.path.abspath(data_root), os.path.abspath(config)
    off = item if is_master_node else None
    known = [entry for entry in entries(state) if (entry.data_root, entry.config) == (root, source)]
    if known and (off is None or any(off in entry.off for entry in known)):
        return False
    with _changing(state) as found:
        _merge(found, Entry(root, source, "run", (off,) if off else ()))
    return True


def add(state: Path, data_root: str | os.PathLike[str], config: str | os.PathLike[str]) -> Entry:
    """`rla-agent replicate add`: every item of a database goes, whoever made it.

    Raises:
        ArgumentError: there is no such folder or file.
    """
    root, source = os.path.abspath(data_root), os.path.abspath(config)
    if not os.path.isdir(root):
        raise ArgumentError(
            f"{root} is not a folder; give the data root, the folder that holds log/, code/ and so on"
        )
    if not os.path.isfile(source):
        raise ArgumentError(f"{source} is not a file; give the rla_config.yaml with its REMOTE_SETTING")
    entry = Entry(root, source, "user")
    with _changing(state) as found:
        _merge(found, entry)
    return entry


def _merge(found: list[Entry], entry: Entry) -> None:
    for number, old in enumerate(found):
        if (old.data_root, old.config) == (entry.data_root, entry.config):
            by: Literal["run", "user"] = "user" if "user" in {old.added_by, entry.added_by} else "run"
            off = tuple(dict.fromkeys((*old.off, *entry.off)))[-MAX_OFF:]
            found[number] = replace(old, added_by=by, off=off)
            return
    found.append(entry)
    del found[:-MAX_DATABASES]


@contextmanager
def _changing(state: Path) -> Iterator[list[Entry]]:
    place = folder(state)
    with (place / "databases.lock").open("w") as lock:
        wait_for_lock(lock.fileno())
        found = entries(state)
        yield found
        text = json.dumps({"version": 1, "databases": [asdict(entry) for entry in found]}, indent=1)
        write_atomic(place / "databases.json", text.encode(), mode=0o600)


def pause(state: Path) -> None:
    """Send nothing until `resume`."""
    (folder(state) / "paused").touch()


def resume(state: Path) -> None:
    """Undo `pause`."""
    (folder(state) / "paused").unlink(missing_ok=True)


def paused(state: Path) -> bool:
    """Whether `pause` was called."""
    return (state / "replicate" / "paused").exists()


def ask_retry(state: Path) -> None:
    """Try everything that is parked or blocked again."""
    (folder(state) / "retry").touch()


def take_retry(state: Path) -> bool:
    """Whether `ask_retry` was called since the last time."""
    try:
        (state / "replicate" / "retry").unlink()
    except FileNotFoundError:
        return False
    return True
