"""Connections with an overall deadline.

A socket's own timeout restarts with each operation, so a server that sends an occasional byte (an endless
`100 Continue`, a reply of ever more lines) blocks a client forever. Here all operations of a message share
one time budget: connecting, TLS, the request, and the complete answer. The size of the answer is bounded,
too. Name resolution is not part of it; it has the resolver's own limits.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

MAX_RECEIVED_BYTES = 1 << 20  # of one message's answers, which take some hundred


class Deadline:
    """The moment, `timeout_s` seconds from now."""

    def __init__(self, timeout_s: float) -> None:
        self._end = time.monotonic() + timeout_s
        self._received = 0

    def left_s(self) -> float:
        """Seconds until then.

        Raises:
            TimeoutError: none.
        """
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def received(self, count: int) -> None:
        """Count received bytes.

        Raises:
            OSError: they are too many.
        """
        self._received += count
        if self._received > MAX_RECEIVED_BYTES:
            raise OSError(f"the server sends more than {MAX_RECEIVED_BYTES} bytes as its answer")

    def connect(self, address: tuple[str, int], *_unused: object) -> socket.socket:
        """A connection, in place of `socket.create_connection`; each address of a host gets its share.

        Raises:
            OSError: none of them answers, or there is none.
        """
        host, port = address
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        last: OSError = OSError(f"{host} has no address")
        for tried, (family, kind, protocol, _, where) in enumerate(found):
            made = TimedSocket(family, kind, protocol)
            made.deadline = self
            try:
                made.settimeout(self.left_s() / (len(found) - tried))
                made.connect(where)
            except OSError as error:
                made.close()
                last = error
            else:
                return made
        raise last

    def bind(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """The TLS context for one message, whose sockets have this deadline."""
        context.sslsocket_class = type("TimedTlsSocket", (_TlsSocket,), {"deadline": self})
        return context


class TimedSocket(socket.socket):
    """A socket whose operations take at most the remaining time."""

    deadline: Deadline

    def recv_into(self, *arguments: Any, **more: Any) -> int:  # noqa: ANN401 - handed on
        """As of a socket; all that files of it read."""
        self.settimeout(self.deadline.left_s())
        count = super().recv_into(*arguments, **more)
        self.deadline.received(count)
        return count

    def send(self, *arguments: Any) -> int:  # noqa: ANN401 - handed on
        """As of a socket."""
        self.settimeout(self.deadline.left_s())
        return super().send(*arguments)

    def sendall(self, *arguments: Any) -> None:  # noqa: ANN401 - handed on
        """As of a socket."""
        self.settimeout(self.deadline.left_s())
        super().sendall(*arguments)


class _TlsSocket(TimedSocket, ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        self.settimeout(self.deadline.left_s())
        super().do_handshake(block)
