"""Child process of a wrapped command.

The main thread waits for signals with sigtimedwait. Signals of the terminal reach the command by themselves,
since it is in the same foreground group (recognized by si_code); all others are sent on to it. As process 1
of a container it also reaps orphans.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from rla_agent.command.wrapped_command.agent_keeper import SETTLE_S
from rla_agent.command.wrapped_command.command_launch import StopSignal
from rla_agent.command.wrapped_command.console import READ_BYTES
from rla_agent.command.wrapped_command.log_writer import LogWriter
from rla_agent.model.process_ending import Ending
from rla_client.contract.process.stop_signals import STOPS

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH,
)  # fmt: skip
FROM_KERNEL = 0x80  # si_code of signals that the terminal sends to the foreground group
LOOK_S = 1.0  # between checks for runs that the command opened


class Child:
    """The command's process, the threads that pass its output on, and signals."""

    def __init__(
        self, program: str, command: Sequence[str], environment: Mapping[str, str], keeper: LogWriter
    ) -> None:
        """Start it.

        Raises:
            OSError: it cannot be executed.
        """
        self.told: StopSignal | None = None
        self._waited = {*FORWARDED, signal.SIGCHLD}
        former = signal.pthread_sigmask(signal.SIG_BLOCK, self._waited)
        streams = [_output_pair(descriptor) for descriptor in (1, 2)]
        actions = [
            (os.POSIX_SPAWN_DUP2, ours[1], number) for number, ours in zip((1, 2), streams, strict=True)
        ]
        try:
            self.pid = os.posix_spawn(
                program, list(command), dict(environment), file_actions=actions, setsigmask=former,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )  # fmt: skip
        finally:
            for _, inner in streams:
                os.close(inner)
        self._terminals = [outer for outer, _ in streams if os.isatty(outer)]
        self._threads = [
            threading.Thread(target=_pass_on, args=(outer, number, keeper), daemon=True)
            for number, (outer, _) in zip((1, 2), streams, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, look: Callable[[], object]) -> Ending:
        """Pass signals on until the command ends, calling `look` each LOOK_S."""
        next_look = time.monotonic() + LOOK_S
        while True:
            pending = signal.sigtimedwait(self._waited, max(0.0, next_look - time.monotonic()))
            if pending is not None and pending.si_signo != signal.SIGCHLD:
                self._forward(pending)
            ended = self._collect()
            if ended is not None:
                break
            if time.monotonic() >= next_look:
                look()
                next_look = time.monotonic() + LOOK_S
        for thread in self._threads:
            thread.join(SETTLE_S * 20)  # its children may still have the pipes open
        return ended

    def _forward(self, info: signal.struct_siginfo) -> None:
        if info.si_signo in STOPS:
            self.told = StopSignal(signal.Signals(info.si_signo), time.time())
        if info.si_signo == signal.SIGWINCH:
            for terminal in self._terminals:
                _copy_window_size(1, terminal)
        elif info.si_code != FROM_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(self.pid, info.si_signo)

    def _collect(self) -> Ending | None:
        """The command's exit status if it has ended; as process 1, also reaps orphans."""
        whom = -1 if os.getpid() == 1 else self.pid
        ended: Ending | None = None
        while True:
            try:
                pid, status = os.waitpid(whom, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self.pid:
                ended = Ending.of(status)


def _output_pair(descriptor: int) -> tuple[int, int]:
    """(our end, the command's end) for one of its outputs: a terminal where ours is one."""
    if os.isatty(descriptor):
        outer, inner = pty.openpty()
        _copy_window_size(descriptor, inner)
        attributes = termios.tcgetattr(inner)
        attributes[1] &= ~termios.OPOST  # our own terminal does that
        termios.tcsetattr(inner, termios.TCSANOW, attributes)
        os.set_inheritable(inner, False)
        return outer, inner
    return os.pipe()


def _copy_window_size(source: int, target: int) -> None:
    with suppress(OSError):
        size = fcntl.ioctl(source, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(target, termios.TIOCSWINSZ, size)


def _pass_on(source: int, target: int, keeper: LogWriter) -> None:
    """Copy output until its end; a missing reader does not end the command."""
    writable = True
    with suppress(OSError):  # EIO: the other side of a terminal is closed
        while data := os.read(source, READ_BYTES):
            keeper.add(data)
            while data and writable:
                try:
                    data = data[os.write(target, data) :]
                except OSError:
                    writable = False
    os.close(source)
