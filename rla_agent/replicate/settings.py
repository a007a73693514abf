"""Which databases are replicated, how the worker hears of them, and what of them goes where.

*Databases.* `<state>/replicate/databases.json` is written here and read by the worker. One entry per (data
root, config): `{"data_root", "config", "added_by": "run" | "user", "off": [items]}`. `run`: a run was
opened with that config, and only items whose `run.json` names this host go. `user`: `rla-agent replicate
add`; every item goes. Writers hold a lock file: the agent never waits for it, a command for ADD_WAIT_S.
Beside it: `paused` (a marker) and `retry` (a marker that the worker takes away).

*Hints* tell the worker at once what the agent wrote, or that somebody acted, by socket, a datagram each:
`<state>/replicate/hints.sock` (AF_UNIX datagram, folder 0700). A message is JSON: `{"outputs": [[path,
generation, size, final], …]}` for append-only outputs and their committed size, `{"files": [path, …]}` for
whole files that were just put in place, `{"now": [path, …]}` to look at an item folder at once
(`sync_log_file`), `{"wake": true}`. Paths are absolute; other bytes than UTF-8 travel as surrogate escapes.
Losing one costs a moment: the truth is agent.db (`source.Committed`) and the next look at the files.

*Targets.* The worker reads the YAML file itself and reads it again when it changes, so no secret passes
through spool, wire or state. `Target.name` says where things go, without secrets; it is the key of
the ledger, so another server or root starts a ledger of its own.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from rla_agent.replicate.backend.target import BlockedError, Session
from rla_agent.replicate.worker.plan import Owned
from rla_client.config.schema import BUCKETS, LOCAL, Config
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.trusted_paths import make_private
from rla_client.contract.process.account import user_name
from rla_client.contract.process.locks import holder_pid, try_lock

if TYPE_CHECKING:
    from rla_agent.replicate.worker.source import Scope
    from rla_client.config.schema import RemoteSetting

MAX_DATABASES: Final = 10_000
SOCKET_NAME: Final = "hints.sock"
MAX_MESSAGE_BYTES: Final = 60 << 10
ADD_WAIT_S: Final = 10.0  # others hold the lock for one small file's sync
MAX_OFF: Final = 10_000  # runs of one database with is_master_node=True
_NO_LIST: Final = (ValueError, KeyError, TypeError, AttributeError)
log = logging.getLogger("rla_agent.replicate.settings")


class ListBusyError(RlaError):
    """Another process changes the list of databases; nothing was done."""


class UnreadableListError(RlaError):
    """It cannot be told now which databases are replicated; none may be taken for not replicated."""


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
    """All databases; none where there is no list.

    Raises:
        UnreadableListError: the list cannot be read.
    """
    try:
        return _read_entries(state)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, *_NO_LIST) as error:
        why = error.strerror if isinstance(error, OSError) else repr(error)
        path = state / "replicate" / "databases.json"
        raise UnreadableListError(f"{path}, the list of databases, cannot be read: {why}") from error


def registry_problem(state: Path) -> str:
    """Why it cannot be told which databases are replicated; empty where it can."""
    try:
        entries(state)
    except UnreadableListError as error:
        return str(error)
    return ""


def listed(state: Path) -> list[Entry]:
    """All databases; an unreadable list counts as empty, for who only wants to know more about them."""
    try:
        return entries(state)
    except UnreadableListError:
        return []


def _read_entries(state: Path) -> list[Entry]:
    found = json.loads((state / "replicate" / "databases.json").read_bytes())
    return [Entry(**{**entry, "off": tuple(entry.get("off", ()))}) for entry in found["databases"]]


def register(
    state: Path,
    data_root: str | os.PathLike[str],
    config: str | os.PathLike[str],
    item: str | None = None,
    *,
    is_master_node: bool = False,
) -> None:
    """A run was opened: replicate its database from now on. Waits for nobody.

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
    with _changing(state, 0.0) as found:
        _merge(found, Entry(root, source, "run", (off,) if off else ()))


def add(state: Path, data_root: str | os.PathLike[str], config: str | os.PathLike[str]) -> Entry:
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
    entry = Entry(root, source, "user")
    with _changing(state, ADD_WAIT_S) as found:
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
def _changing(state: Path, wait_s: float) -> Iterator[list[Entry]]:
    place = folder(state)
    path = place / "databases.lock"
    with path.open("w") as lock:
        if not try_lock(lock.fileno(), timeout_s=wait_s):
            pid = holder_pid(lock.fileno()) if wait_s else None  # the kernel's list may be long
            who = f"process {pid}" if pid else "another process"
            raise ListBusyError(
                f"{who} holds {path}, the lock of the list of databases; nothing was changed: end it, or if "
                "it is stopped let it go on (kill -CONT), then try again"
            )
        found = _entries_to_change(place / "databases.json", state)
        yield found
        text = json.dumps({"version": 1, "databases": [asdict(entry) for entry in found]}, indent=1)
        write_atomic(place / "databases.json", text.encode(), mode=0o600)


def _entries_to_change(path: Path, state: Path) -> list[Entry]:
    """All databases; a list that says nothing is put aside.

    Raises:
        OSError: it cannot be read now; who took it for empty would write over it.
    """
    try:
        return _read_entries(state)
    except FileNotFoundError:
        return []
    except _NO_LIST as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        log.warning(
            "the list of replicated databases was damaged (%r) and is begun anew: look at %s, and add what "
            "is missing: rla-agent replicate add",
            *(error, aside),
        )
        return []


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


@dataclass(frozen=True, slots=True)
class Hint:
    """One message, checked. Paths are bytes, absolute."""

    outputs: tuple[tuple[bytes, Owned], ...] = ()
    files: tuple[bytes, ...] = ()
    now: tuple[bytes, ...] = ()


def parse(message: bytes) -> Hint:
    """Read a message; what is not understood is left out, for it is only a hint."""
    try:
        found = json.loads(message)
        outputs = tuple(
            (os.fsencode(path), Owned(int(generation), int(size), bool(final)))
            for path, generation, size, final in found.get("outputs", ())
        )
        files = tuple(os.fsencode(path) for path in found.get("files", ()))
        now = tuple(os.fsencode(path) for path in found.get("now", ()))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return Hint()
    return Hint(outputs, files, now)


class Announcer:
    """The agent's end. No call waits or raises because of the replicator."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "replicate"
        self._socket = _open_socket()

    def committed(self, outputs: Iterable[tuple[str, int, int, bool]]) -> None:
        """Append-only outputs have grown: (absolute path, generation, committed bytes, final)."""
        self._send_rows("outputs", list(outputs))

    def placed(self, paths: Iterable[str]) -> None:
        """Whole files were put in place (absolute paths)."""
        self._send_rows("files", list(paths))

    def now(self, folders: Iterable[str]) -> None:
        """Look at these item folders at once; none: at everything."""
        self._send(json.dumps({"now": list(folders)}).encode())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send_rows(self, name: str, rows: Sequence[object]) -> None:
        """In few messages: the kernel queues no more than about ten for a busy reader."""
        data = json.dumps({name: rows}).encode()
        if len(data) > MAX_MESSAGE_BYTES and len(rows) > 1:
            self._send_rows(name, rows[: len(rows) // 2])
            self._send_rows(name, rows[len(rows) // 2 :])
        elif rows:
            self._send(data)

    def _send(self, data: bytes) -> None:
        if len(data) <= MAX_MESSAGE_BYTES:
            with suppress(OSError), _short_path(self._folder) as path:
                self._socket.sendto(data, path)


class Listener:
    """The worker's end; `fileno` for select."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "replicate"
        self._socket = _open_socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        with suppress(FileNotFoundError):
            (self._folder / SOCKET_NAME).unlink()
        with _short_path(self._folder) as path:
            self._socket.bind(path)
        (self._folder / SOCKET_NAME).chmod(0o600)

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def receive(self) -> list[Hint]:
        """All hints that are there."""
        found: list[Hint] = []
        with suppress(BlockingIOError):
            while len(found) < 1000:  # noqa: PLR2004 - then other work has its turn
                found.append(parse(self._socket.recv(MAX_MESSAGE_BYTES)))
        return found

    def close(self) -> None:
        """Remove the socket."""
        self._socket.close()
        with suppress(FileNotFoundError):
            (self._folder / SOCKET_NAME).unlink()


def _open_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


@contextmanager
def _short_path(folder: Path) -> Iterator[str]:
    """A path of the socket that is short whatever the folder's: sun_path holds 107 bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a database goes.

    Attributes:
        name: `sftp://user@host:port/root`, no secrets.
        open: connects; resolves keys and passwords anew each time.
        connections: how many at most.
        rate: bytes per second, 0 for no limit.
        retention: `mirror` or `keep`.
        append_every_s: seconds between two appends to a run's files, where each costs; 0: as they come.
        confirms: what it acknowledges may yet be lost, so it is confirmed later (`worker.confirm`).
    """

    name: str
    open: Callable[[], Session]
    connections: int
    rate: int
    retention: str
    append_every_s: float = 0.0
    confirms: bool = True


def scope(entry: Entry, config: Config, host: str) -> Scope:
    """What of a database goes; `host` is this machine's name in run.json."""
    import pathspec  # noqa: PLC0415 - only where patterns are used

    from rla_agent.replicate.worker.source import Scope  # noqa: PLC0415

    patterns = config.agent.replicate_ignore
    return Scope(
        host="" if entry.added_by == "user" else host,
        kinds=config.agent.replicate,
        ignore=pathspec.PathSpec.from_lines("gitwildmatch", patterns) if patterns else None,
        max_bytes=config.agent.replicate_max_file_bytes,
        off=frozenset(entry.off),
    )


def wanted(entry: Entry, config: Config) -> bool:
    """Whether a database is replicated: asked for by the user, or SEND_LOG_FILE with a server."""
    return config.remote_setting.named and (entry.added_by == "user" or config.send_log_file)


def target(config: Config, private: Path) -> Target:
    """Where the config's database goes. `private`: `<state>/replicate`."""
    remote = config.remote_setting
    protocol = remote.file_transfer_protocol
    return Target(
        _name(remote),
        lambda: _connect(config, private),
        connections=1 if protocol == "ftp" else remote.connections,
        rate=remote.rate_limit_bytes_s,
        retention=config.agent.replicate_retention,
        append_every_s=remote.append_every_s if protocol in BUCKETS else 0.0,
        confirms=protocol not in BUCKETS,
    )


def _name(remote: RemoteSetting) -> str:
    """See `Target.name`."""
    protocol, root = remote.file_transfer_protocol, remote.remote_data_root
    if protocol in BUCKETS:
        from rla_agent.replicate.backend.bucket_store import bucket_name  # noqa: PLC0415

        return bucket_name(remote)
    if protocol in LOCAL:
        return f"{protocol}:{root}"
    port = f":{remote.port}" if remote.port else ""
    user = remote.username or user_name() or os.getuid()
    return f"{protocol}://{user}@{remote.ftp_server}{port}/{root}"


def _open_sftp(config: Config, private: Path) -> Session:
    from rla_agent.replicate.backend.connect import open_sftp, resolve_login  # noqa: PLC0415

    remote = config.remote_setting
    return open_sftp(resolve_login(remote, private, config.path), remote.remote_data_root)


def _open_ftp(config: Config, _private: Path) -> Session:
    from rla_agent.replicate.backend.simple import open_ftp  # noqa: PLC0415

    return open_ftp(config.remote_setting)


def _open_folder(config: Config, _private: Path) -> Session:
    from rla_agent.replicate.backend.simple import FolderSession  # noqa: PLC0415

    return FolderSession(config.remote_setting.remote_data_root)


def _open_bucket(config: Config, _private: Path) -> Session:
    from rla_agent.replicate.backend.bucket import open_bucket  # noqa: PLC0415

    return open_bucket(config.remote_setting)


# each imports its backend when it is asked for
_BACKENDS: Final[dict[str, Callable[[Config, Path], Session]]] = {
    "sftp": _open_sftp,
    "ftp": _open_ftp,
    "folder": _open_folder,
    **dict.fromkeys(BUCKETS, _open_bucket),
}
"""What opens a session, by protocol. A new backend is a line here, and its name one of `config.schema`'s."""


def _connect(config: Config, private: Path) -> Session:
    remote = config.remote_setting
    if not remote.remote_data_root and remote.file_transfer_protocol not in BUCKETS:
        what = "REMOTE_SETTING.remote_data_root is empty"
        raise BlockedError("connect", b"", what, "name the master's folder")
    return _BACKENDS[remote.file_transfer_protocol](config, private)
