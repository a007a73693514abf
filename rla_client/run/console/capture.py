"""Capture of a training's console output (`init(console=True)` or `AGENT.console`).

Descriptors 1 and 2 lead into a pipe, for this process, C libraries and the processes it starts; into two
where they led to different files. A helper process (console_process.py) reads it, passes everything on to the
former targets, and stores it. It is not a child of this process and survives its kill. Where the helper ends
first, the descriptors are restored. This process has the pipe open for reading, too: so writers never get
SIGPIPE, and the rest of its content is passed on.

C's stdio and Python's `print` are line-buffered, so that a kill loses no complete line.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from rla_client.contract.agent.agent_environment import shares_our_life
from rla_client.contract.process.descriptors import lift
from rla_client.contract.spool.opening import CONSOLE_VARIABLE
from rla_client.run.console.pass_on import ready
from rla_client.run.console.redirection import Redirection, copy_standard
from rla_client.run.current_logger import warn

if TYPE_CHECKING:
    from rla_client.config.schema import AgentConfig
    from rla_client.run.run import Run

SWITCH_WAIT_S = 3.0  # wait where a run begins or ends for earlier output: the reader may only be starting
EXIT_WAIT_S = 1.0  # at the end of the program, for what it printed to reach the terminal before the prompt,
LAST_WAIT_S = 5.0  # or at all, where a container or a job ends with the program
START_S = 10.0
_STANDARD = (1, 2)
_LINE_BUFFERED = 1  # _IOLBF
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])  # as the training finds its modules
from rla_client.run.console.console_process import main
main(sys.argv[2])
"""
_SETTINGS = ("autostart", "spool_max_bytes", "min_free_fraction", "console_max_bytes")  # of AGENT

_capture: Capture | None = None  # of this process


def keep_console(run: Run, settings: AgentConfig) -> None:
    """Record this process's output from now on in the console of `run`, until it closes.

    Does nothing under `rla-agent run`, which records it already, nor where the run stores nothing. A failure
    is a warning.
    """
    global _capture  # noqa: PLW0603 - a process has one console
    if run.outbox is None or run.opening is None or CONSOLE_VARIABLE in os.environ:
        return
    if not settings.console_max_bytes:
        return
    secrets = run.logger.secrets
    described = {
        "opening": run.opening.to_fields(),
        "secrets": [] if secrets is None else secrets.values,
        "settings": {name: getattr(settings, name) for name in _SETTINGS},
    }
    if _capture is None or not _capture.usable or not _capture.leads():
        try:
            _capture = Capture(described)
        except (OSError, subprocess.SubprocessError) as error:
            warn(f"console=True: what is printed is not kept: {error}")
            return
    else:
        _capture.begin_run(described)
    run.at_close.append(partial(_capture.end_run, described))


class Capture:
    """Descriptors 1 and 2 of this process, led through pipes.

    Args:
        run: gets the output from now on.

    Raises:
        OSError, SubprocessError: the capture is impossible; nothing has changed.
    """

    def __init__(self, run: dict[str, Any]) -> None:
        flush(by_line=True)
        self._pid = os.getpid()
        self._answered = threading.Event()
        self._ends = False
        self._open = [run]  # output belongs to the last one
        terminals = [stream for stream in (sys.stdout, sys.stderr) if _is_terminal(stream)]
        first, second = (copy_standard(number) for number in _STANDARD)
        if os.path.samestat(os.fstat(first.number), os.fstat(second.number)):
            self._redirections = [Redirection(_STANDARD, first)]
        else:
            self._redirections = [Redirection((1,), first), Redirection((2,), second)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = socket.socket(fileno=lift(ours.detach()))
        self._control.settimeout(None)  # whatever the training has in its own environment
        with theirs:
            self._send({"what": "run", "run": run})
            self._start(theirs)
        for redirection in self._redirections:
            redirection.lead_in()
        self._tell_size()
        for stream in (sys.stdout, sys.stderr):
            if stream in terminals:  # the program still sees a terminal: its colours and bars stay
                with contextlib.suppress(AttributeError):
                    stream.isatty = lambda: True  # type: ignore[method-assign]
            with contextlib.suppress(AttributeError, OSError, ValueError):  # not the standard stream
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        if not _prints_to_descriptor(sys.stdout):
            warn(
                "console=True stores what is written to file descriptors 1 and 2, but sys.stdout "
                "writes elsewhere"
            )
        threading.Thread(target=self._watch, name="rla console", daemon=True).start()
        atexit.register(self._await)

    @property
    def usable(self) -> bool:
        """Whether it still serves this process: after a fork the parent has it."""
        return self._pid == os.getpid() and self._control.fileno() >= 0

    def leads(self) -> bool:
        """Whether the descriptors still lead into the pipes: a library may have led one elsewhere."""
        return all(any(redirection.has(number) for redirection in self._redirections) for number in _STANDARD)

    def begin_run(self, run: dict[str, Any]) -> None:
        """Let output from now on belong to this run."""
        self._open.append(run)
        self._tell({"what": "run", "run": run}, SWITCH_WAIT_S)

    def end_run(self, run: dict[str, Any]) -> None:
        """Let output belong to the newest open run after one has closed.

        Not where the program ends: its last output belongs to its last run.
        """
        if self._ends or run not in self._open:
            return
        was_last = self._open[-1] is run
        self._open.remove(run)
        if was_last:
            self._tell({"what": "run", "run": self._open[-1] if self._open else None}, SWITCH_WAIT_S)

    def _tell(self, message: dict[str, Any], wait_s: float) -> None:
        """Send the helper process a message about the following output, and wait for its answer."""
        if not self.usable:
            return
        flush()
        self._answered.clear()
        try:
            self._send(message)
        except OSError as error:
            warn(f"console=True: what is printed is not kept: {error}")
            return
        self._answered.wait(wait_s)

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode(), socket.MSG_DONTWAIT)

    def _tell_size(self) -> None:
        """Set COLUMNS and LINES to the terminal's size, which the descriptors no longer report."""
        for redirection in self._redirections:
            with contextlib.suppress(OSError):
                size = os.get_terminal_size(redirection.before.number)
                os.environ.setdefault("COLUMNS", str(size.columns))
                os.environ.setdefault("LINES", str(size.lines))

    def _start(self, control: socket.socket) -> None:
        """Start the helper process, detached from this one."""
        sources = [redirection.source.number for redirection in self._redirections]
        targets = [redirection.before.number for redirection in self._redirections]
        arguments = {"sources": sources, "targets": targets, "control": control.fileno()}
        path = json.dumps([os.path.abspath(entry) for entry in sys.path if entry])
        command = [sys.executable, "-I", "-c", _START, path, json.dumps(arguments)]
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=[*sources, *targets, control.fileno()],
            timeout=START_S,
            check=True,
        )

    def _watch(self) -> None:
        """Read messages of the helper process; restore the descriptors where it ends."""
        while True:
            try:
                said = self._control.recv(64)
            except OSError:
                said = b""
            if not said:
                break
            self._answered.set()
        self._control.close()
        self._answered.set()
        for redirection in self._redirections:
            redirection.lead_back()
        warn(
            "console=True: the process that stores the output has ended; further output is printed but "
            "not stored"
        )
        with contextlib.suppress(OSError):
            self._pass_on_of_others()

    def _pass_on_of_others(self) -> None:
        """Pass on output that processes started by this one still write into the pipes."""
        rest = list(self._redirections)
        while rest:
            found = ready([redirection.source.number for redirection in rest], None)
            for redirection in [each for each in rest if each.source.number in found]:
                if not redirection.pass_on():
                    rest.remove(redirection)

    def _await(self) -> None:
        """Wait a moment until earlier output is passed on."""
        self._ends = True
        if self.usable:
            self._tell({"what": "wait"}, LAST_WAIT_S if shares_our_life() else EXIT_WAIT_S)
        elif self._pid == os.getpid():
            for redirection in self._redirections:
                redirection.pass_on_rest()


def flush(*, by_line: bool = False) -> None:
    """Flush the buffers of Python and C; `by_line`: make them line-buffered from now on."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    library = ctypes.CDLL(None)
    for name in ("stdout", "stderr"):
        with contextlib.suppress(ValueError):  # a C library with other names
            file = ctypes.c_void_p.in_dll(library, name)
            library.fflush(file)
            if by_line:
                library.setvbuf(file, None, _LINE_BUFFERED, 0)


def _is_terminal(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):
        return False


def _prints_to_descriptor(stream: IO[str] | None) -> bool:
    try:
        return stream is not None and stream.fileno() in _STANDARD
    except (AttributeError, OSError, ValueError):
        return False
