"""Messages from the training process to the agent, and an agent's start where none answers.

Sending never waits, and nothing depends on it: records are in the spool. A socket belongs to the
thread that holds the outbox's lock; waiting for an answer uses one of its own.

ZeroMQ is imported when the first run opens: it is a third of what importing the package would cost.
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.autostart import agent_alive, load_imports, start_agent
from rla_client.errors import RemoteProtocolError
from rla_client.places import Places
from rla_client.protocol import PROTOCOL_VERSION, MessageKind, decode_message, encode_message
from rla_client.rare_warnings import warn_rarely

if TYPE_CHECKING:
    import zmq

START_INTERVAL_S = 60.0  # between looks for an agent when records are refused, and between starts of one
START_WAIT_S = 10.0  # that an agent may take to serve; one that has not come by then is not waited for
FLUSH_ASK_AGAIN_S = 0.25
LOOK_INTERVAL_S = 1.0  # at where the agent serves, while it does not take what is sent
SEND_QUEUE_MESSAGES = 64
REFUSED_PAUSE_S = 0.010  # a refused send costs 2.3 us; at most a hundred a second
CONTEXT_DESCRIPTORS = 16  # ZeroMQ's threads take seven, and end the process where they get none
PENDING_MAX_BYTES = 64 << 10  # of a message; beyond, the agent reads the file, which is as fast

_inherited: list[object] = []  # sockets of the parent: never closed, never collected, in the child


class Messenger:
    """The agent of this machine, seen from one outbox.

    Args:
        places: where its sockets are.
        autostart: whether one may be started from here.
        config_path: handed to it then.
    """

    def __init__(self, places: Places, *, autostart: bool, config_path: Path | None) -> None:
        self._places = places
        self._autostart = autostart
        self._config_path = config_path
        self._looked = self._started = float("-inf")
        self._start_refused = False
        self._warned: dict[str, float] = {}
        self._next_look = 0.0
        self._path: Path | None = None  # that the socket connects to
        self._socket: zmq.Socket[bytes] | None = None
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None

    def send(self, header: dict[str, Any], body: bytes) -> bool:
        """Send segment bytes without waiting; False if they were refused."""
        try:
            import zmq  # noqa: PLC0415 - not at import of the package
        except (ImportError, OSError):  # no descriptors left to read it by
            return False
        try:
            socket = self._socket or self._connect()
            socket.send(encode_message(MessageKind.DATA, header, body), zmq.NOBLOCK)
        except OSError:  # there are too few descriptors for a socket
            return False
        except zmq.ZMQError:
            self._follow_agent()
            return False
        return True

    def _follow_agent(self) -> None:
        """Let go of a socket whose agent is gone when the next one serves under another path."""
        now = time.monotonic()
        if self._socket is None or now < self._next_look:
            return
        self._next_look = now + LOOK_INTERVAL_S
        if self._places.data_socket != self._path:
            self._socket.close(linger=0)
            self._socket = None

    def _connect(self) -> zmq.Socket[bytes]:
        self._context = self._context or _new_context()
        self._path = self._places.data_socket
        self._socket = _dealer(self._context, self._path)
        self._warn_of_older_agent()
        return self._socket

    def _warn_of_older_agent(self) -> None:
        """Say once that an agent serves which cannot read this release's records."""
        import json  # noqa: PLC0415 - not at import of the package
        import logging  # noqa: PLC0415

        try:
            reads = json.loads(self._places.lock.read_bytes()).get("protocol", 1)
        except (OSError, ValueError, AttributeError):
            return
        if isinstance(reads, int) and reads < PROTOCOL_VERSION and agent_alive(self._places):
            logging.getLogger("rla_client").warning(
                "the agent that runs is of an older release and cannot read this one's records; "
                "they wait in %s. Start the new one: rla-agent restart",
                self._places.spool,
            )

    def close(self) -> None:
        """Let go of the socket; what was not sent stays in the spool."""
        socket, context = self._socket, self._context
        self._socket = self._context = None
        if socket is None and context is None:
            return
        import zmq  # noqa: PLC0415 - loaded already: there is a socket

        with suppress(zmq.ZMQError):
            if socket is not None:
                socket.close(linger=0)
            if context is not None:
                context.term()

    def abandon(self) -> None:
        """In a forked child: forget the parent's socket without touching it."""
        _inherited.extend(thing for thing in (self._socket, self._context) if thing is not None)
        self._socket = self._context = None

    def start_agent_if_none(self, *, at_once: bool = False) -> bool:
        """Start an agent when none serves, at most once a minute; else say once how to.

        A thread does it: a shell takes milliseconds, a service manager that hangs takes seconds.

        Args:
            at_once: look now, however short ago the last look was.

        Returns:
            False when it was found that none serves and none is about to.
        """
        now = time.monotonic()
        if not at_once and now - self._looked < START_INTERVAL_S:
            return True
        self._looked = now
        if self._autostart:
            load_imports()
        if agent_alive(self._places):
            return True
        if not self._autostart or self._places.stopped_marker.exists():
            self._advise()
            return False
        if now - self._started < START_INTERVAL_S:
            return not self._start_refused and now - self._started < START_WAIT_S
        self._started, self._start_refused = now, False
        thread = threading.Thread(target=self._start_agent, name="rla-start", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads
            self._start_refused = True
            self._advise()
        return not self._start_refused

    def _start_agent(self) -> None:
        if not start_agent(self._places, self._config_path):
            self._start_refused = True
            self._advise()

    def _advise(self) -> None:
        advice = "no agent runs; records wait in %s. Start one: rla-agent start --detach"
        warn_rarely(self._warned, "agent", advice, self._places.spool)

    def await_flushed(self, header: dict[str, Any], deadline: float | None) -> bool:
        """Ask until everything before a position is durable.

        Args:
            header: names stream and position.
            deadline: monotonic; None waits for ever.

        Returns:
            False when that did not happen in time, or no agent runs and none may be started.
        """
        try:
            context = _new_context()
        except (ImportError, OSError):  # too few descriptors
            return False
        done = None
        try:
            while done is None:
                path = self._places.data_socket
                with closing(_dealer(context, path)) as socket:
                    done = self._ask_until(socket, path, header, deadline)
        finally:
            context.term()
        return done

    def _ask_until(
        self, socket: zmq.Socket[bytes], path: Path, header: dict[str, Any], deadline: float | None
    ) -> bool | None:
        """As `await_flushed`; None when the agent serves elsewhere than at `path`."""
        import zmq  # noqa: PLC0415 - loaded already: there is a socket

        request = encode_message(MessageKind.FLUSH, header)
        while wait_ms := _wait_ms(deadline):
            connected = socket.poll(wait_ms, zmq.POLLOUT)  # a new socket is not at once
            if connected:
                with suppress(zmq.ZMQError):
                    socket.send(request, zmq.NOBLOCK)
            if connected and socket.poll(_wait_ms(deadline)):
                with suppress(zmq.ZMQError, RemoteProtocolError):
                    kind, answer, _body = decode_message(socket.recv(zmq.NOBLOCK))
                    if kind == MessageKind.FLUSHED and answer.get("s") == header["s"]:
                        return bool(answer.get("done"))
            elif not self.start_agent_if_none(at_once=True):
                return False
            elif not connected and self._places.data_socket != path:
                return None
        return False


def _wait_ms(deadline: float | None) -> int:
    """Milliseconds until it is time to ask again, 0 when the deadline has passed."""
    left = FLUSH_ASK_AGAIN_S if deadline is None else min(deadline - time.monotonic(), FLUSH_ASK_AGAIN_S)
    return max(0, math.ceil(1000.0 * left))


def _new_context() -> zmq.Context[zmq.Socket[bytes]]:
    """A context, where there are descriptors for it.

    Raises:
        OSError: there are too few.
    """
    import zmq  # noqa: PLC0415 - not at import of the package

    taken: list[int] = []
    try:
        for _ in range(CONTEXT_DESCRIPTORS):
            taken.append(os.eventfd(0))  # noqa: PERF401 - to be closed wherever it ends
    finally:
        for descriptor in taken:
            os.close(descriptor)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    return context


def _dealer(context: zmq.Context[zmq.Socket[bytes]], path: Path) -> zmq.Socket[bytes]:
    import zmq  # noqa: PLC0415 - loaded already: there is a context

    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, SEND_QUEUE_MESSAGES)
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.connect(f"ipc://{path}")
    return socket
