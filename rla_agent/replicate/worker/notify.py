"""Hints: the agent tells the replicator what it wrote. A datagram each; losing one costs a moment.

Socket `<state>/replicate/hints.sock` (AF_UNIX datagram, folder 0700). A message is JSON:
`{"outputs": [[path, generation, size, final], …]}` for append-only outputs and their committed size,
`{"files": [path, …]}` for whole files that were just put in place, `{"now": [path, …]}` to look at
an item folder at once (`sync_log_file`), `{"wake": true}`. Paths are absolute; other bytes than
UTF-8 travel as surrogate escapes. The truth that a lost hint leaves is agent.db (`Committed`) and
the next look at the files.
"""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.worker.plan import Owned

SOCKET_NAME: Final = "hints.sock"
MAX_MESSAGE_BYTES: Final = 60 << 10
MAX_REMEMBERED: Final = 50_000  # outputs in memory; agent.db has the rest
_QUERY: Final = "SELECT generation, size, final FROM outputs WHERE path = ? ORDER BY generation DESC LIMIT 1"


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
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )

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
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
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


class _short_path:  # noqa: N801 - used as a function
    """A path of the socket that is short whatever the folder's: sun_path holds 107 bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> str:
        self._descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


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
