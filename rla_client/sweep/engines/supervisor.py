"""The process that starts a sweep's programs on this machine, keeping their exit statuses.

A driver starts one supervisor, in a session of its own. It outlives the driver: when that is killed, the
supervisor starts nothing more, waits for the programs that run, writes their exit statuses and ends.

    driver -> supervisor   4 bytes of length, then a pickled Start or Signal; with a Start go the
                           descriptors of its output, its lock, and further locks. Starts beyond `parallel`
                           wait here, so that no core waits for the driver
    supervisor -> driver   a line of JSON for each end: [number, exit status, reason]

The driver locks a run's lock file before it sends the descriptor, so the lock is held from then on by
whoever has the descriptor: the socket, the supervisor, the program. The supervisor releases it when the exit
status is in its file: a run with a free lock and no exit status has left none. If the supervisor is killed,
programs run on; the driver waits for their locks.

This file runs by itself (`python -I -S`), which takes a tenth of the time that the package needs: it imports
nothing else of it.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

BY_SIGNAL = 128  # a shell's status of a program that was ended by signal n is 128 + n
NOT_STARTED = 126
LENGTH_BYTES = 4
MAX_DESCRIPTORS = 250  # of one message; the kernel takes 253
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them, programs should not


class Start(NamedTuple):
    """Start a program: its number, path, words, further variables, working folder and exit status file."""

    number: int
    program: str
    command: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    exit: str


class Signal(NamedTuple):
    """Send a signal to the process group of a run that has not ended; one that waits ends as if by it."""

    number: int
    signal: int


class Supervisor:
    """The driver's end; at most `parallel` programs run at a time."""

    def __init__(self, parallel: int) -> None:
        import subprocess  # noqa: PLC0415 - the process itself does without

        self._socket, other = socket.socketpair()
        self._buffer = b""
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(other.fileno()), str(parallel)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(other.fileno(),),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def send(self, message: Start | Signal, descriptors: list[int]) -> None:
        """Have that done.

        Raises:
            OSError: it is gone.
        """
        data = pickle.dumps((type(message).__name__, tuple(message)))
        data = len(data).to_bytes(LENGTH_BYTES, "big") + data
        sent = socket.send_fds(self._socket, [data], descriptors) if descriptors else 0
        if sent < len(data):
            self._socket.sendall(data[sent:])

    def ends(self, timeout_s: float) -> list[tuple[int, int, str]] | None:
        """Ends since the last call, after waiting for the first for so long; None: the supervisor is gone."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return []
        try:
            data = self._socket.recv(1 << 16)
        except ConnectionError:
            return None
        if not data:
            return None
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [(number, status, reason) for number, status, reason in map(json.loads, lines)]

    def close(self, *, wait: bool) -> None:
        """Let go of it: it ends with the last of its programs; wait for that if there is none."""
        self._socket.close()
        if wait:
            self._process.wait()


class _Service:
    """The process's end."""

    def __init__(self, connection: socket.socket, parallel: int) -> None:
        connection.set_inheritable(False)  # a program that held it would hide the end of this process
        self._connection, self._parallel = connection, parallel
        self._waiting: dict[int, tuple[Start, list[int]]] = {}  # by run, with its descriptors
        self._is_driven = True
        self._running: dict[int, tuple[Start, int]] = {}  # by process number, with its lock
        self._environment = dict(os.environb)  # of every program, decoded and encoded for none

    def run(self) -> None:
        """Serve the driver; without one, until the last program has ended."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        while self._is_driven or self._running:
            sources: list[int | socket.socket] = [reading]
            if self._is_driven:
                sources.append(self._connection)
            ready = select.select(sources, [], [])[0]
            if reading in ready:
                os.read(reading, 1 << 12)
                self._reap()
            if self._connection in ready:
                self._serve()

    def _serve(self) -> None:
        descriptors: list[int] = []
        try:
            head, descriptors, _, _ = socket.recv_fds(self._connection, LENGTH_BYTES, MAX_DESCRIPTORS)
            head += self._read(LENGTH_BYTES - len(head)) if head else b""
            if not head:
                raise ConnectionAbortedError
            kind, content = pickle.loads(self._read(int.from_bytes(head, "big")))  # noqa: S301 - of our driver
            if kind == Start.__name__:
                start = Start(*content)
                self._waiting[start.number] = start, descriptors
                descriptors = []
                self._start_next()
            else:
                self._signal(Signal(*content))
        except ConnectionError:  # the driver is gone; what it had not sent whole is not started
            self._is_driven = False
            while self._waiting:  # nor what waits: its lock is free by that, and the next driver starts it
                descriptors += self._waiting.popitem()[1][1]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _read(self, length: int) -> bytes:
        parts = []
        while length:
            part = self._connection.recv(min(length, 1 << 20))
            if not part:
                raise ConnectionAbortedError
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._parallel:
            start, descriptors = self._waiting.pop(next(iter(self._waiting)))
            try:
                self._start(start, *descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)

    def _start(self, start: Start, output: int, *locks: int) -> None:
        lock = os.dup(locks[0])
        try:
            os.chdir(start.folder)
            pid = self._spawn(start, output, locks)
        except (OSError, ValueError) as error:  # ValueError: a word that no program can be given
            os.close(lock)
            self._tell(start.number, NOT_STARTED, f"cannot be started: {error}")
            return
        self._running[pid] = start, lock
        with suppress(OSError):  # a full disk: the lock is held all the same
            os.pwrite(lock, b"%d\n" % pid, 0)

    def _spawn(self, start: Start, output: int, locks: Sequence[int]) -> int:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ]
        for lock in locks:
            os.set_inheritable(lock, True)  # closed before the next program is started
        further = {os.fsencode(name): os.fsencode(value) for name, value in start.environment.items()}
        environment = {**self._environment, **further}

        def spawn(program: str, words: tuple[str, ...]) -> int:
            return os.posix_spawn(
                program, words, environment, file_actions=actions, setsid=True, setsigdef=RESTORED
            )

        try:
            return spawn(start.program, start.command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            return spawn("/bin/sh", ("sh", start.program, *start.command[1:]))  # a script without #!

    def _signal(self, asked: Signal) -> None:
        if asked.number in self._waiting:
            _, descriptors = self._waiting.pop(asked.number)
            for descriptor in descriptors:
                os.close(descriptor)
            self._tell(asked.number, BY_SIGNAL + asked.signal)
        for pid, (start, _) in self._running.items():
            if start.number == asked.number:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, asked.signal)

    def _reap(self) -> None:
        while self._running:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            start, lock = self._running.pop(ended.si_pid, (None, -1))
            if start is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(ended.si_pid, signal.SIGTERM)  # what it left in the background
                self._start_next()
                status = ended.si_status + (0 if ended.si_code == os.CLD_EXITED else BY_SIGNAL)
                self._keep(start, status)
                os.close(lock)
                self._tell(start.number, status)
            os.waitpid(ended.si_pid, 0)

    @staticmethod
    def _keep(start: Start, status: int) -> None:
        """Write the exit status down; on a full disk the driver, if there is one, knows it all the same."""
        with suppress(OSError):
            file = os.open(start.exit, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, b"%d\n" % status)
            finally:
                os.close(file)

    def _tell(self, number: int, status: int, reason: str = "") -> None:
        with suppress(OSError):  # the driver is gone
            self._connection.sendall(json.dumps([number, status, reason]).encode() + b"\n")


if __name__ == "__main__":
    _Service(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).run()
