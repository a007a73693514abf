"""Hints that files have changed: the agent tells the replicator what it wrote, and folders are watched.

*The agent's* come by socket, a datagram each: `<state>/replicate/hints.sock` (AF_UNIX datagram, folder
0700). A message is JSON: `{"outputs": [[path, generation, size, final], …]}` for append-only outputs and
their committed size, `{"files": [path, …]}` for whole files that were just put in place, `{"now": [path,
…]}` to look at an item folder at once (`sync_log_file`), `{"wake": true}`. Paths are absolute; other bytes
than UTF-8 travel as surrogate escapes. Losing one costs a moment: the truth is agent.db (`Committed`) and
the next look at the files.

*Watched* by watchfiles are the items that ended last: what somebody adds to them goes in a second. A hint
and nothing more (docs/adr/0005): live items are announced by the agent and looked at each second, and a
look at everything comes every minute, so an event that is lost costs a minute. Watched are the folders of a
few items, because inotify takes a watch for each folder and a database has millions.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.worker.plan import Owned
from rla_client.contract.layout import FOLDER_KINDS

SOCKET_NAME: Final = "hints.sock"
MAX_MESSAGE_BYTES: Final = 60 << 10
MAX_REMEMBERED: Final = 50_000  # outputs in memory; agent.db has the rest
MAX_ITEMS: Final = 64  # of one database: with all kinds some hundred inotify watches
DEBOUNCE_MS: Final = 400
STEP_MS: Final = 200
REST_S: Final = 60.0  # after watchfiles failed: a name that is not UTF-8, no watches left
JOIN_S: Final = 2.0
MAX_PATHS: Final = 10_000  # reported and not yet taken; beyond, the look at everything finds them
_QUERY: Final = "SELECT generation, size, final FROM outputs WHERE path = ? ORDER BY generation DESC LIMIT 1"
_log = logging.getLogger("rla_agent.replicate")


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
        self._send({"now": list(folders)})

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
            self._send({name: rows})

    def _send(self, message: dict[str, object]) -> None:
        data = json.dumps(message).encode()
        if len(data) > MAX_MESSAGE_BYTES:
            return
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


class Committed:
    """What the agent says of its append-only outputs: `outputs` in agent.db (read-only).

    The agent commits there before it hints, so a hint counts only while agent.db cannot be read. An
    output whose stream has ended is in neither: then the file itself is the truth.
    """

    def __init__(self, state: Path) -> None:
        self._path = state / "agent.db"
        self._db: sqlite3.Connection | None = None
        self._hinted: dict[bytes, Owned] = {}

    def hint(self, path: bytes, owned: Owned) -> None:
        """Remember a hint; they come in the order in which they were sent."""
        if len(self._hinted) >= MAX_REMEMBERED:
            self._hinted.clear()
        self._hinted[path] = owned

    def lookup(self, path: bytes) -> Owned | None:
        """The agent's word on an absolute path; None when it has none."""
        try:
            if self._db is None:
                if not self._path.exists():
                    return self._hinted.get(path)
                self._db = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=0.2)
            row = self._db.execute(_QUERY, (os.fsdecode(path),)).fetchone()
        except UnicodeEncodeError:
            return self._hinted.get(path)
        except sqlite3.Error:
            self.close()
            return self._hinted.get(path)
        if row is None:
            self._hinted.pop(path, None)
            return None
        return Owned(int(row[0]), int(row[1]), bool(row[2]))

    def time_steps(self) -> dict[str, float | None]:
        """Item → time-step of the runs that live; run.json is a minute behind."""
        try:
            with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=0.2)) as db:
                runs = [json.loads(data) for (data,) in db.execute("SELECT data FROM runs WHERE live = 1")]
            return {f"{run['table']}/{run['index']}": run["time_step"] for run in runs}
        except (sqlite3.Error, ValueError, KeyError, TypeError):
            return {}

    def close(self) -> None:
        """Close agent.db; the next lookup opens it again."""
        if self._db is not None:
            self._db.close()
            self._db = None


class LastEnded:
    """The items of a database that ended last: their folders are worth watching."""

    def __init__(self) -> None:
        self._recent: list[tuple[int, str]] = []  # (end, item), the last one last

    def note(self, item: str, ended_ns: int) -> None:
        """An item ended then."""
        if len(self._recent) < MAX_ITEMS or ended_ns > self._recent[0][0]:
            recent = [known for known in self._recent if known[1] != item]
            self._recent = sorted([*recent, (ended_ns, item)])[-MAX_ITEMS:]

    def folders(self, root: bytes, kinds: Iterable[str]) -> list[str]:
        """Absolute paths of their folders of these kinds."""
        wanted = [kind for kind in kinds if kind in FOLDER_KINDS]
        return [os.path.join(os.fsdecode(root), kind, item) for _, item in self._recent for kind in wanted]


class Watch:
    """A thread that reports changed paths below some folders."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called, from the thread, when there is something to take."""
        self._wake = wake
        self._paths: queue.Queue[bytes] = queue.Queue(MAX_PATHS)
        self._folders: tuple[str, ...] = ()
        self._changed = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def set(self, folders: Iterable[str]) -> None:
        """Watch these folders and what is below them, and no others; absolute paths."""
        wanted = tuple(sorted(folders))
        if wanted == self._folders:
            return
        self._folders = wanted
        self._changed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()

    def take(self) -> list[bytes]:
        """Changed paths, absolute, since the last call."""
        found: dict[bytes, None] = {}
        while True:
            try:
                found[self._paths.get_nowait()] = None
            except queue.Empty:
                return list(found)

    def close(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            folders = [folder for folder in self._folders if os.path.isdir(folder)]
            if not folders:
                self._changed.wait()
                continue
            try:
                self._watch(folders)
            except (OSError, RuntimeError, UnicodeError) as error:
                _log.info("watching rests, files are found by looking: %s", error)
                self._changed.wait(REST_S)

    def _watch(self, folders: list[str]) -> None:
        from watchfiles import watch  # noqa: PLC0415 - only once there is something to watch

        for changes in watch(
            *folders,
            watch_filter=None,
            debounce=DEBOUNCE_MS,
            step=STEP_MS,
            stop_event=self._changed,
            raise_interrupt=False,
            ignore_permission_denied=True,
        ):
            for _, path in changes:
                try:
                    self._paths.put_nowait(os.fsencode(path))
                except queue.Full:
                    break
            self._wake()
