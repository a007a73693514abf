"""Sockets of the agent with their poller."""

from __future__ import annotations

import logging
import os
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import zmq

from rla_client.contract.agent.places import NOWHERE, Places
from rla_client.contract.errors import PlaceError, RemoteProtocolError, UnknownVersionError
from rla_client.contract.filesystem.trusted_paths import make_private
from rla_client.contract.spool.protocol import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    MessageKind,
    decode_message,
    encode_message,
    message_version,
)

BACKLOG = 4096  # clients that may connect at the same moment
RECEIVE_QUEUE = 64  # of one client; beyond, its messages are refused and only its file is read
ZERO_COPY_RECV = 10  # of zmq.h; pyzmq has no name for it
MAX_OLDER_PEERS = 10_000  # peers whose version is remembered; further ones ask again
ANSWERS_MAX = 100_000  # clients repeat a flush, so an answer may be dropped
_log = logging.getLogger("rla_agent")
Message: TypeAlias = tuple[bytes, int, dict[str, Any], bool]  # peer, kind, header, is_command


class Sockets:
    """Both sockets and their poller."""

    def __init__(self, places: Places) -> None:
        """Bind, unless the sockets are NOWHERE. The caller has the agent's lock: no other agent serves there.

        Raises:
            zmq.ZMQError: a path cannot be bound.
        """
        #: Messages that no client of ours sends, since the agent's start. `_take`, `count_garbage`.
        self.garbage = 0
        #: Messages of a later release. `_take`.
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
        """Bind again where the file of a socket was deleted, by a cleaner or with its folder at a logout.

        Connected peers stay connected. The former binding is kept, since ending it would delete the new file.
        """
        for router, path in self._bound:
            if os.path.lexists(path):
                continue
            with suppress(zmq.ZMQError, OSError, PlaceError):
                make_private(path.parent)
                self._bind(router, path)
                _log.warning("the socket %s was deleted and has been recreated", path)

    @staticmethod
    def _bind(router: zmq.Socket[bytes], path: Path) -> None:
        router.bind(f"ipc://{path}")
        path.chmod(0o600)

    def receive(self, timeout_s: float, most: int) -> list[Message]:
        """Wait, then take all valid messages, at most `most`."""
        ready = dict(self._poller.poll(int(timeout_s * 1000)))
        messages: list[Message] = []
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
            self._send_answers()
        if self._control in ready:
            self._take(self._control, messages, 100)
        if self._data in ready:
            self._take(self._data, messages, most)
        return messages

    def count_garbage(self) -> None:
        """Count a message that was decoded and is invalid."""
        self.garbage += 1

    def _take(self, router: zmq.Socket[bytes], messages: list[Message], most: int) -> None:
        for _ in range(most):
            try:
                parts = router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(parts) != 2:  # noqa: PLR2004 - peer and message
                self.garbage += 1
                continue
            try:
                kind, header = decode_message(parts[1])
            except UnknownVersionError:
                self.newer += 1
            except RemoteProtocolError:
                self.garbage += 1
            else:
                if (version := message_version(parts[1])) != PROTOCOL_VERSION:
                    if len(self._older) >= MAX_OLDER_PEERS:
                        self._older.clear()
                    self._older[parts[0]] = version
                messages.append((parts[0], kind, header, router is self._control))

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
        """Send waiting messages, close, and delete the sockets' files; the caller holds the agent's lock."""
        self._send_answers()
        self._closed = True
        self._data.close(linger=200)
        self._control.close(linger=200)
        self._context.term()
        for _, path in self._bound:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        os.close(self._wake_read)
        os.close(self._wake_write)
