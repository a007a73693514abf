"""Connection to the agent by ZMTP over a Unix socket.

It has no threads. The library would keep some ten descriptors and two threads in the training process, and
aborts that process where somebody closes one of them. Here a closed descriptor is an OSError like any other.
Only `receive` waits. Nothing is queued, except the rest of a partly sent message: a message that the socket
does not take is refused. The bytes are those of https://rfc.zeromq.org/spec/23.
"""

from __future__ import annotations

import errno
import os
import select
import struct
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from rla_client.contract.agent.agent_process import (
    CONNECT_AGAIN_S,
    MAX_ANSWER_BYTES,
    READY_BODY,
    RECEIVE_BYTES,
    SHORT_MOST,
)
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.process.descriptors import identity, leads_to, lift
from rla_client.contract.spool.protocol import MessageKind, decode_message, encode_message

GREETING_BYTES = 64
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
LONG, COMMAND = 2, 4  # flags of a frame
_SHORT = struct.Struct(">BB")  # flags, length of the body
_LONG = struct.Struct(">BQ")
READY = _SHORT.pack(COMMAND, len(READY_BODY)) + READY_BODY


class Dealer:
    """A connection to the ROUTER that listens at `path`.

    Raises:
        OSError: nobody does, or no descriptor is free.
    """

    def __init__(self, path: Path) -> None:
        try:
            import socket  # noqa: PLC0415 - not at import of the package
        except ImportError as error:  # no descriptors left to read it by
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as low:
            low.connect(os.fspath(path))
            self._socket = socket.socket(fileno=lift(low.detach()))
        self._identity = identity(self._socket.fileno())
        self._no_signal = socket.MSG_NOSIGNAL
        self._out = bytearray(GREETING)
        self._in = bytearray()
        self._greeted = self._ready = False

    def send(self, message: bytes) -> bool:
        """Send a complete message; False where the socket does not take it now.

        Raises:
            OSError: the connection is gone.
        """
        self._pump()
        if self._out or not self._ready:
            return False
        size = len(message)
        head = _SHORT.pack(0, size) if size <= SHORT_MOST else _LONG.pack(LONG, size)
        sent = self._push(head + message)
        if sent:
            self._out += (head + message)[sent:]
        return sent > 0

    def receive(self, timeout_s: float) -> bytes | None:
        """The next answer; None where none comes within `timeout_s`.

        Raises:
            OSError: the connection is gone.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            gone: OSError | None = None
            try:
                self._pump()
            except OSError as error:  # an agent that ends may have answered before
                gone = error
            answer = self._message()
            if answer is None and gone is not None:
                raise gone
            left = deadline - time.monotonic()
            if answer is not None or left <= 0:
                return answer
            self._wait(left)

    def connected(self, timeout_s: float) -> bool:
        """Whether the agent took the connection within `timeout_s`: from then on it takes messages.

        Raises:
            OSError: the connection is gone.
        """
        deadline = time.monotonic() + timeout_s
        self._pump()
        while (not self._ready or self._out) and (left := deadline - time.monotonic()) > 0:
            self._wait(left)
            self._pump()
        return self._ready and not self._out

    def close(self) -> None:
        """Close the connection; also right in a forked child, whose parent keeps its own."""
        if leads_to(self._socket.fileno(), self._identity):
            self._socket.close()
        else:
            self._socket.detach()  # the number belongs to another file by now

    def _wait(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._out else 0))
        poll.poll(max(1, int(timeout_s * 1000)))

    def _pump(self) -> None:
        """Send the rest of a message, and receive available bytes."""
        if not leads_to(self._socket.fileno(), self._identity):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if self._out:
            del self._out[: self._push(self._out)]
        while True:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except BlockingIOError:
                break
            if not data:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self._in += data
        if not self._greeted and len(self._in) >= GREETING_BYTES:
            del self._in[:GREETING_BYTES]
            self._greeted = True
            self._out += READY
            del self._out[: self._push(self._out)]
        if self._greeted and not self._ready:
            self._ready = self._frame() is not None

    def _push(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data, self._no_signal)
        except BlockingIOError:
            return 0

    def _message(self) -> bytes | None:
        """The next complete message; commands are skipped."""
        while self._ready and (frame := self._frame()) is not None:
            flags, body = frame
            if not flags & COMMAND:
                return body
        return None

    def _frame(self) -> tuple[int, bytes] | None:
        """Take one complete frame from the received bytes."""
        received = self._in
        if not received:
            return None
        head = _LONG if received[0] & LONG else _SHORT
        begin = head.size
        if len(received) < begin:
            return None
        flags, size = head.unpack_from(received)
        if size > MAX_ANSWER_BYTES:
            raise OSError(errno.EPROTO, os.strerror(errno.EPROTO))
        if len(received) < begin + size:
            return None
        frame = flags, bytes(received[begin : begin + size])
        del received[: begin + size]
        return frame


def ask(
    socket: Path, question: dict[str, Any], timeout_s: float, *, version: int | None = None
) -> dict[str, Any] | None:
    """Send a request to the agent; returns its answer, None when there is none in time.

    Args:
        socket: the agent's control socket.
        question: `{}` asks for its status.
        timeout_s: for connecting and the answer together.
        version: of the protocol; None: today's.
    """
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        with suppress(OSError, RemoteProtocolError), closing(Dealer(socket)) as dealer:
            if dealer.connected(left) and dealer.send(
                encode_message(MessageKind.STATUS, question, version=version)
            ):
                answer = dealer.receive(max(0.0, deadline - time.monotonic()))
                return None if answer is None else decode_message(answer)[1]
        time.sleep(min(CONNECT_AGAIN_S, max(0.0, deadline - time.monotonic())))
    return None
