"""Datagrams that notify the worker of new bytes.

Losing one costs only time, for agent.db (`worker.committed`) and the next scan are authoritative. They go to
`<state>/replicate/hints.sock` (AF_UNIX datagram, folder 0700). A message is
JSON: `{"outputs": [[path, generation, size, final], …]}` for append-only outputs and their committed size,
`{"files": [path, …]}` for whole files that were just put in place, `{"now": [path, …]}` to look at an item
folder at once (`sync_log_file`), `{"wake": true}`. Paths are absolute; other bytes than UTF-8 travel as
surrogate escapes.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rla_agent.replicate.file_state import Owned

SOCKET_NAME: Final = "hints.sock"
MAX_MESSAGE_BYTES: Final = 60 << 10


@dataclass(frozen=True, slots=True)
class FileHint:
    """One message, checked. Paths are bytes, absolute."""

    outputs: tuple[tuple[bytes, Owned], ...] = ()
    files: tuple[bytes, ...] = ()
    now: tuple[bytes, ...] = ()


def parse_hint(message: bytes) -> FileHint:
    """Parse a message; unknown parts are skipped, for it is only a hint."""
    try:
        fields = json.loads(message)
        outputs = tuple(
            (os.fsencode(path), Owned(int(generation), int(size), bool(final)))
            for path, generation, size, final in fields.get("outputs", ())
        )
        files = tuple(os.fsencode(path) for path in fields.get("files", ()))
        now = tuple(os.fsencode(path) for path in fields.get("now", ()))
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return FileHint()
    return FileHint(outputs, files, now)


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
        """Have the worker check these item folders at once; none: everything."""
        self._send(json.dumps({"now": list(folders)}).encode())

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _send_rows(self, name: str, rows: Sequence[object]) -> None:
        """Send rows in few messages: the kernel queues no more than about ten for a busy reader."""
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

    def receive(self) -> list[FileHint]:
        """All hints that are there."""
        hints: list[FileHint] = []
        with suppress(BlockingIOError):
            while len(hints) < 1000:  # noqa: PLR2004 - then other work has its turn
                hints.append(parse_hint(self._socket.recv(MAX_MESSAGE_BYTES)))
        return hints

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
