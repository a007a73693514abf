"""The capture of a training's console: `init(console=True)` or `AGENT.console`.

Descriptors 1 and 2 become files in memory, for this process, C libraries and the processes it starts: so a
print is one write(2) that no terminal, pipe, disk or process can hold up. A small process of our own
(mirror.py) passes everything on to where it went before, and into the spool. It is not this one's child, and
survives what kills it. Where that process ends first, the descriptors lead where they did before.

What C's stdio and Python's `print` hold back is given out line by line, so that a kill takes none of it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from rla_client.contract.agent.agent_environment import shares_our_life
from rla_client.contract.process.descriptors import LEAST, OwnFile, identity, leads_to, lift
from rla_client.contract.process.locks import try_lock
from rla_client.contract.process.syscalls import memory_file, process_descriptor
from rla_client.contract.spool.opening import CONSOLE_VARIABLE
from rla_client.run.current_logger import warn

if TYPE_CHECKING:
    from rla_client.config.schema import AgentConfig
    from rla_client.run.run import Run

EXIT_WAIT_S = 1.0  # at the end of the program, for what it printed to reach the terminal before the prompt,
LAST_WAIT_S = 10.0  # or at all, where a container or a job ends with the program
START_S = 10.0
_STANDARD = (1, 2)
_LINE_BUFFERED = 1  # _IOLBF
_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])  # as the training finds its modules
from rla_client.run.console.mirror import main
main(sys.argv[2])
"""
_SETTINGS = ("autostart", "spool_max_bytes", "min_free_fraction", "console_max_bytes")  # of AGENT

_capture: Capture | None = None  # of this process


def keep_console(run: Run, settings: AgentConfig) -> None:
    """Keep what this process prints from now on in the console of `run`, until it closes.

    Under `rla-agent run`, which keeps it already, nothing changes; nor where the run stores nothing. Where it
    cannot be kept, a warning says why.
    """
    global _capture  # noqa: PLW0603 - a process has one console
    if run.outbox is None or run.opening is None or CONSOLE_VARIABLE in os.environ:
        return
    if not settings.console_max_bytes:
        return
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        warn("console=True: what is printed is not kept where files end at a size (ulimit -f)")
        return
    if _capture is None or not _capture.usable or not _capture.leads():
        try:
            _capture = Capture()
        except (OSError, subprocess.SubprocessError) as error:
            warn(f"console=True: what is printed is not kept: {error}")
            return
    secrets = run.logger.secrets
    told = {
        "opening": run.opening.to_fields(),
        "secrets": [] if secrets is None else secrets.values,
        "settings": {name: getattr(settings, name) for name in _SETTINGS},
    }
    _capture.begin_run(told)
    run.at_close.append(partial(_capture.end_run, told))


class Capture:
    """Descriptors 1 and 2 of this process, led through files in memory.

    Raises:
        OSError, SubprocessError: that cannot be done; all is as before.
    """

    def __init__(self) -> None:
        flush(by_line=True)
        self._pid = os.getpid()
        self._passed = threading.Event()
        self._ends = False
        self._open: list[dict[str, Any]] = []  # runs; what is printed belongs to the last one
        shown = [stream for stream in (sys.stdout, sys.stderr) if _is_terminal(stream)]
        self._before = [OwnFile(_copy(number)) for number in _STANDARD]
        first, second = (os.fstat(file.number) for file in self._before)
        self._numbers = [_STANDARD] if os.path.samestat(first, second) else [(1,), (2,)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = socket.socket(fileno=lift(ours.detach()))
        self._control.settimeout(None)  # whatever the training has for its own
        with contextlib.ExitStack() as opened, theirs:
            files = [opened.enter_context(OwnFile(_file_in_memory())) for _ in self._numbers]
            self._progress = OwnFile(memory_file("rla-console"))
            self._start(files, theirs)
            for file, numbers in zip(files, self._numbers, strict=True):
                for number in numbers:
                    os.dup2(file.number, number)
        self._files = [identity(numbers[0]) for numbers in self._numbers]
        self._tell_size()
        for stream in (sys.stdout, sys.stderr):
            if stream in shown:  # its colours and bars stay
                with contextlib.suppress(AttributeError):
                    stream.isatty = lambda: True  # type: ignore[method-assign]
            with contextlib.suppress(AttributeError, OSError, ValueError):  # another's, or closed
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        if not _prints_to_descriptor(sys.stdout):
            warn("console=True keeps what goes to descriptors 1 and 2; sys.stdout leads elsewhere here")
        threading.Thread(target=self._watch, name="rla console", daemon=True).start()
        atexit.register(self._await)

    @property
    def usable(self) -> bool:
        """Whether it still serves this process: after a fork the parent has it."""
        return self._pid == os.getpid() and self._control.fileno() >= 0

    def leads(self) -> bool:
        """Whether the descriptors still lead to the files in memory: a library may have led one elsewhere."""
        return all(self._is_ours(number) for number in _STANDARD)

    def tell(self, message: dict[str, Any]) -> None:
        """Tell the mirror something about what is printed from now on."""
        if not self.usable:
            return
        flush()
        try:
            sizes = [
                os.fstat(numbers[0]).st_size if self._is_ours(numbers[0]) else 0 for numbers in self._numbers
            ]
            self._control.send(json.dumps({**message, "at": sizes}).encode(), socket.MSG_DONTWAIT)
        except OSError as error:
            warn(f"console=True: what is printed is not kept: {error}")

    def begin_run(self, run: dict[str, Any]) -> None:
        """What is printed from now on belongs to this run."""
        self._open.append(run)
        self.tell({"what": "run", "run": run})

    def end_run(self, run: dict[str, Any]) -> None:
        """A run has closed: what is printed belongs to the newest open one, if that changes.

        Not where the program ends: its last words are its last run's.
        """
        if self._ends or run not in self._open:
            return
        was_last = self._open[-1] is run
        self._open.remove(run)
        if was_last:
            self.tell({"what": "run", "run": self._open[-1] if self._open else None})

    def _tell_size(self) -> None:
        """Say by COLUMNS and LINES how large the terminal is: the descriptors cannot be asked any more."""
        for file in self._before:
            with contextlib.suppress(OSError):
                size = os.get_terminal_size(file.number)
                os.environ.setdefault("COLUMNS", str(size.columns))
                os.environ.setdefault("LINES", str(size.lines))

    def _is_ours(self, number: int) -> bool:
        return any(leads_to(number, file) for file in self._files)

    def _start(self, files: list[OwnFile], control: socket.socket) -> None:
        """Start the mirror as nobody's child."""
        training = process_descriptor(os.getpid())
        try:
            passed = [file.number for file in (*files, *self._before[: len(files)])]
            what = {
                "sources": passed[: len(files)],
                "targets": passed[len(files) :],
                "progress": self._progress.number,
                "control": control.fileno(),
                "training": training,
            }
            path = json.dumps([os.path.abspath(entry) for entry in sys.path if entry])
            command = [sys.executable, "-I", "-c", _START, path, json.dumps(what)]
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[*passed, self._progress.number, control.fileno(), training],
                timeout=START_S,
                check=True,
            )
        finally:
            os.close(training)

    def _watch(self) -> None:
        """Hear from the mirror; where it ends, let descriptors lead where they did before."""
        while True:
            try:
                said = self._control.recv(64)
            except OSError:
                said = b""
            if not said:
                break
            self._passed.set()
        self._control.close()
        self._passed.set()
        self._restore()

    def _restore(self) -> None:
        for place, (numbers, before) in enumerate(zip(self._numbers, self._before, strict=False)):
            rest = -1
            with contextlib.suppress(OSError):
                if self._is_ours(numbers[0]):
                    rest = os.open(f"/proc/self/fd/{numbers[0]}", os.O_RDONLY)
            for number in filter(self._is_ours, numbers):
                try:
                    os.dup2(before.number, number)
                except OSError:  # somebody closed it; and what is written into memory would stay there
                    with contextlib.suppress(OSError):
                        null = os.open(os.devnull, os.O_RDWR)
                        os.dup2(null, number)
                        os.close(null)
            with contextlib.suppress(OSError):
                passed_on = os.pread(self._progress.number, 8, 8 * place)
                _pass_on(rest, int.from_bytes(passed_on, sys.byteorder), before.number)
            if rest >= 0:
                os.close(rest)
        warn("console=True: the process that keeps what is printed has ended; nothing more is kept")

    def _await(self) -> None:
        """Wait a moment until what was printed is passed on."""
        if self.usable:
            self._ends = True
            self.tell({"what": "wait"})
            self._passed.wait(LAST_WAIT_S if shares_our_life() else EXIT_WAIT_S)


def flush(*, by_line: bool = False) -> None:
    """Give out what Python and C hold back; `by_line`: from now on by themselves after each line."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    library = ctypes.CDLL(None)
    for name in ("stdout", "stderr"):
        with contextlib.suppress(ValueError):  # a C library that calls them otherwise
            file = ctypes.c_void_p.in_dll(library, name)
            library.fflush(file)
            if by_line:
                library.setvbuf(file, None, _LINE_BUFFERED, 0)


def _copy(number: int) -> int:
    """A copy of a standard descriptor; of one that is closed, the null device."""
    try:
        return fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LEAST)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


def _file_in_memory() -> int:
    """A file that all writers append to, and that is locked as long as one of them has it."""
    descriptor = memory_file("rla-console")
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
    try_lock(descriptor, shared=True)
    return descriptor


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


def _pass_on(source: int, at: int, target: int) -> None:
    """What the mirror has left in a file in memory."""
    while piece := os.pread(source, 1 << 16, at):
        at += os.write(target, piece)
