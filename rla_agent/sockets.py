"""The agent's sockets: a ROUTER for segment bytes and flushes, a ROUTER for commands, and systemd's.

Whatever arrives is checked before it is decoded; garbage is counted and dropped. A peer of an older
version is answered in its own. Both ROUTERs belong to the ingest thread. Other threads hand answers
over through `answer_later`, which wakes the poller.

Over the notify socket systemd is told READY, STATUS, WATCHDOG and STOPPING. The watchdog is fed by the
ingest loop itself, after each full turn: a loop that hangs is killed and started again, and nothing is lost
by that. Volume threads are left out on purpose: a frozen disk delays its own streams and is no reason to
end the agent. Without NOTIFY_SOCKET every call does nothing.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import zmq

from rla_agent.units import SERVICE_VARIABLE
from rla_client.contract.errors import PlaceError, RemoteProtocolError, UnknownVersionError
from rla_client.contract.paths import NOWHERE, Places, make_private
from rla_client.contract.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    MessageKind,
    decode_message,
    encode_message,
    message_version,
)

BACKLOG = 4096  # clients that may connect at the same moment
RECEIVE_QUEUE = 64  # of one client; beyond, its messages are refused and its file is read
ZERO_COPY_RECV = 10  # of zmq.h; pyzmq has no name for it
MAX_OLDER_PEERS = 10_000  # whose version is remembered; a peer beyond asks again and is remembered then
ANSWERS_MAX = 100_000  # a flush is asked again, so an answer may be dropped
STATUS_INTERVAL_S = 5.0
BEATS_PER_TIMEOUT = 4  # the watchdog's time holds so many beats

_log = logging.getLogger("rla_agent.sockets")
Message: TypeAlias = tuple[bytes, int, dict[str, Any], bytes, bool]  # peer, kind, header, body, is_command


class Wire:
    """Both sockets and their poller."""

    def __init__(self, places: Places) -> None:
        """Bind, unless the sockets lie NOWHERE. The caller holds the agent's lock: nobody else serves there.

        Raises:
            zmq.ZMQError: a path cannot be bound.
        """
        self.garbage = 0
        self.newer = 0
        self._closed = False
        self._bound: list[tuple[zmq.Socket[bytes], Path]] = []
        self._older: dict[bytes, int] = {}  # peer → version, of those that do not speak ours
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        with suppress(zmq.ZMQError):  # a message that waits would keep the 8 KiB that it was read into
            self._context.set(ZERO_COPY_RECV, 0)
        self._data = self._router(places.data_socket)
        self._control = self._router(places.control_socket)
        self._answers: deque[tuple[zmq.Socket[bytes], bytes, bytes]] = deque(maxlen=ANSWERS_MAX)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller = zmq.Poller()
        for what in (self._data, self._control, self._wake_read):
            self._poller.register(what, zmq.POLLIN)

    def _router(self, path: Path) -> zmq.Socket[bytes]:
        router: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        router.setsockopt(zmq.LINGER, 0)
        router.setsockopt(zmq.BACKLOG, BACKLOG)
        router.setsockopt(zmq.RCVHWM, RECEIVE_QUEUE)
        router.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if path.parent != NOWHERE:
            path.unlink(missing_ok=True)
            self._bind(router, path)
            self._bound.append((router, path))
        return router

    def bind_again(self) -> None:
        """Bind anew where the file of a socket is gone: a cleaner took it, or a logout its folder.

        Those who are connected stay so. The former binding is kept: to end it would delete the new file.
        """
        for router, path in self._bound:
            if os.path.lexists(path):
                continue
            with suppress(zmq.ZMQError, OSError, PlaceError):
                make_private(path.parent)
                self._bind(router, path)
                _log.warning("the socket %s was deleted, and is there again", path)

    @staticmethod
    def _bind(router: zmq.Socket[bytes], path: Path) -> None:
        router.bind(f"ipc://{path}")
        path.chmod(0o600)

    def receive(self, timeout_s: float, most: int) -> list[Message]:
        """Wait, then take what is there.

        Returns:
            Each valid message, at most `most`.
        """
        ready = dict(self._poller.poll(int(timeout_s * 1000)))
        messages: list[Message] = []
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
            self._send_answers()
        if self._control in ready:
            self._take(self._control, messages, 100, is_command=True)
        if self._data in ready:
            self._take(self._data, messages, most, is_command=False)
        return messages

    def _take(
        self, router: zmq.Socket[bytes], messages: list[Message], most: int, *, is_command: bool
    ) -> None:
        for _ in range(most):
            try:
                parts = router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) != 2:  # noqa: PLR2004 - peer and message
                self.garbage += 1
                continue
            try:
                kind, header, body = decode_message(parts[1])
            except UnknownVersionError:
                self.newer += 1
            except RemoteProtocolError:
                self.garbage += 1
            else:
                if (version := message_version(parts[1])) != PROTOCOL_VERSION:
                    if len(self._older) >= MAX_OLDER_PEERS:
                        self._older.clear()
                    self._older[parts[0]] = version
                messages.append((parts[0], kind, header, body, is_command))

    def reply(self, peer: bytes, header: dict[str, Any]) -> None:
        """Answer a command."""
        with suppress(zmq.ZMQError):
            message = encode_message(MessageKind.REPLY, header, version=self._older.get(peer))
            self._control.send_multipart([peer, message], zmq.NOBLOCK)

    def answer_later(self, peer: bytes, header: dict[str, Any], *, command: bool = False) -> None:
        """Answer a flush, or a command; from any thread."""
        kind = MessageKind.REPLY if command else MessageKind.FLUSHED
        message = encode_message(kind, header, version=self._older.get(peer))
        self._answers.append((self._control if command else self._data, peer, message))
        self.wake()

    def wake(self) -> None:
        """Make `receive` return; from any thread and from signal handlers."""
        if self._closed:
            return
        with suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"x")

    def _send_answers(self) -> None:
        while self._answers:
            router, peer, message = self._answers.popleft()
            with suppress(zmq.ZMQError):
                router.send_multipart([peer, message], zmq.NOBLOCK)

    def close(self) -> None:
        """Send what waits and close."""
        self._send_answers()
        self._closed = True
        self._data.close(linger=200)
        self._control.close(linger=200)
        self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)


class Notifier:
    """One process's line to its service manager."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Read and remove the variables, so that no child takes itself for the service."""
        self._address = environment.pop("NOTIFY_SOCKET", "")
        timeout_us = environment.pop("WATCHDOG_USEC", "")
        owner = environment.pop("WATCHDOG_PID", "")
        self.kind = environment.pop(SERVICE_VARIABLE, "")
        ours = owner in {"", str(os.getpid())}
        self.beat_s = int(timeout_us) / 1e6 / BEATS_PER_TIMEOUT if timeout_us.isdigit() and ours else 0.0
        self._next_beat = 0.0
        self._next_status = 0.0
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    def ready(self) -> None:
        """The sockets are bound and the spool was looked at."""
        self._send("READY=1")

    def stopping(self) -> None:
        """No new work is taken."""
        self._send("STOPPING=1\nSTATUS=writing what is left")

    def beat(self, now: float) -> None:
        """The ingest loop made a full turn; `now` is monotonic."""
        if self.beat_s and now >= self._next_beat:
            self._next_beat = now + self.beat_s
            self._send("WATCHDOG=1")

    def status_due(self, now: float) -> bool:
        """Whether it is time for a new line of text."""
        if self._socket is None or now < self._next_status:
            return False
        self._next_status = now + STATUS_INTERVAL_S
        return True

    def status(self, text: str) -> None:
        """One line that `systemctl status` shows."""
        self._send(f"STATUS={text.splitlines()[0] if text else ''}")

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> None:
        if self._socket is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError):  # a full queue or a manager that restarts: the next one arrives
            self._socket.sendto(text.encode(), address)
