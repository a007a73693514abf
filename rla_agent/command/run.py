"""`rla-agent run -- CMD`: a command with an agent around it, for batch jobs and containers.

Starts an agent if none serves, runs CMD in this process group, passes signals on, passes its output
on and keeps it (rla_agent/command/console.py), writes its exit code or signal into run.json of the runs that
it opened, waits until their data are durable, and ends with CMD's status (128 + n after signal n). A signal
that tells CMD to stop is noted: runs that were open then, and ended, are `interrupted`.
The runs are found by RLA_LAUNCH, which CMD inherits and the opening frame of each run carries.
An agent that goes away meanwhile (out of memory, or that of another job that ended) is started again;
what was started here, or by CMD's processes, is stopped at the end.

Signals. The main thread waits for them with sigtimedwait. What the terminal sends reaches CMD by
itself, as one of the same foreground group (si_code says so); everything else is sent on to CMD.

As process 1 of a container it also collects orphans.
"""

from __future__ import annotations

import fcntl
import os
import pty
import secrets
import shutil
import signal
import sqlite3
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rla_agent.command.console import READ_BYTES, LogWriter
from rla_agent.model.run_record import RunRecord
from rla_agent.pipeline.segment_reader import read_opening
from rla_agent.service.control_client import ask_status
from rla_agent.service.flush_client import wait_durable
from rla_agent.service.lock_holder import read_holder
from rla_agent.service.start_stop import start_detached, stop_agent
from rla_agent.store.agent_db import AgentDatabase, Changes
from rla_client.config.schema import AgentConfig, password_variables
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.agent_start import start_agent
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import RlaError
from rla_client.contract.process.stop_signals import FOR_ANYTHING, STOPS, signal_of
from rla_client.contract.spool.losses import lost_lines
from rla_client.contract.spool.opening import CONSOLE_VARIABLE, LAUNCH_VARIABLE
from rla_client.contract.spool.segments import stream_names
from rla_client.contract.spool.writer_liveness import process_start, writer_alive

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH,
)  # fmt: skip
FROM_KERNEL = 0x80  # si_code of what the terminal sends to the foreground group
LOOK_S = 1.0  # between looks for runs that the command opened
START_AGAIN_S = 5.0  # between starts of an agent that does not stay
SETTLE_S = 0.05
RUN_FILE_WAIT_S = 5.0
ASK_TIMEOUT_S = 1.0  # signals wait so long for an agent that hangs
NOT_FOUND, NOT_EXECUTABLE = 127, 126
SOON_S = 900.0  # Slurm's --signal comes a minute or some before the limit


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended: `code`, or `signal` when one killed it."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, wait_status: int) -> Ending:
        """From what waitpid gave."""
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(code, None) if code >= 0 else cls(None, -code)

    @property
    def status(self) -> int:
        """The shell's exit status."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    @property
    def words(self) -> str:
        """For a run's reason."""
        if self.signal is None:
            named = signal_of(self.code)
            return f"exit code {self.code}" if named is None else f"exit code {self.code} ({named.name})"
        with suppress(ValueError):
            return f"killed by {signal.Signals(self.signal).name}"
        return f"killed by signal {self.signal}"


@dataclass(frozen=True, slots=True)
class Told:
    """A signal that told the command to stop, and when it came (Unix seconds)."""

    number: signal.Signals
    at: float

    def ended(self, record: RunRecord) -> bool:
        """Whether a run was open when it came, and ended after it; of USR1 and USR2, soon after it."""
        if record.closed is None or record.closed < self.at:
            return False
        return self.number not in FOR_ANYTHING or record.closed - self.at < SOON_S


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that was run: its RLA_LAUNCH, process and end; and what told it to stop."""

    name: str
    pid: int
    ending: Ending
    told: Told | None = None


def run_command(
    command: Sequence[str],
    places: Places,
    settings: AgentConfig,
    *,
    drain_s: float,
    console: bool = True,
    config: Path | None = None,
) -> int:
    """Run a command with an agent; returns its exit status.

    Args:
        command: program and arguments.
        places: of the agent.
        settings: the AGENT section.
        drain_s: seconds to wait for its runs' data after it ended.
        console: keep what it prints.
        config: handed to an agent that is started.
    """
    program = shutil.which(command[0])
    if program is None:
        there = "/" in command[0] and os.path.exists(command[0])
        sys.stderr.write(f"rla-agent run: {command[0]}: {'cannot be executed' if there else 'not found'}\n")
        return NOT_EXECUTABLE if there else NOT_FOUND
    with suppress(RlaError):  # told of below
        places.create()
    kept_bytes = settings.console_max_bytes if console else 0
    keeper = LogWriter(places.state, kept_bytes)
    keeping = AgentKeeper(places, config)
    launch = secrets.token_hex(8)
    try:
        kept = {CONSOLE_VARIABLE: "1"} if kept_bytes else {}
        child = Child(program, command, {**os.environ, LAUNCH_VARIABLE: launch, **kept}, keeper)
    except OSError as error:
        sys.stderr.write(f"rla-agent run: {command[0]}: {error.strerror or error}\n")
        ending = Ending(NOT_EXECUTABLE, None)
    else:

        def look() -> None:
            keeping.look()
            _place_console(places, launch, keeper)

        ending = child.wait(look)
        ended = Launch(launch, child.pid, ending, child.told)
        _settle(places, keeping, ended, keeper, time.monotonic() + drain_s)
    keeping.stop()
    return ending.status


class AgentKeeper:
    """Sees to it that an agent serves while the command runs."""

    def __init__(self, places: Places, config: Path | None) -> None:
        """Start one if none serves; without one, rows wait in the spool."""
        self._places = places
        self._config = config
        self._started = False
        self._owner = f"{os.getpid()} {process_start(os.getpid())}"
        os.environ[OWNER_VARIABLE] = self._owner  # also of an agent that the command's processes start
        self._next_start = time.monotonic() + START_AGAIN_S
        try:
            places.create()
            self._started = start_detached(places, config)
        except RlaError as error:
            sys.stderr.write(f"rla-agent run: {error}\nrows are kept in the spool {places.spool}\n")

    def look(self, *, at_once: bool = False) -> None:
        """Start another where the agent has gone, `at_once` also shortly after the last start.

        It is not waited for, and `rla-agent stop` is honoured.
        """
        now = time.monotonic()
        if (now < self._next_start and not at_once) or agent_alive(self._places):
            return
        self._next_start = now + START_AGAIN_S
        self._started |= start_agent(
            self._places, self._config, password_variables([self._config] if self._config else [])
        )

    def serves(self, deadline: float) -> bool:
        """Whether an agent serves now; where none does, one is started and waited for until a moment."""
        if time.monotonic() < deadline and not agent_alive(self._places):
            self.look(at_once=True)
            _await_agent(self._places, min(deadline, time.monotonic() + RUN_FILE_WAIT_S))
        return agent_alive(self._places)

    def stop(self) -> None:
        """End the agent if it was started here; one that only comes up now ends by itself."""
        if self._started or read_holder(self._places).get("owner") == self._owner:
            with suppress(RlaError):
                stop_agent(self._places)


# -- the command --------------------------------------------------------------------------------


class Child:
    """The command's process, the threads that pass its output on, and signals."""

    def __init__(
        self, program: str, command: Sequence[str], environment: Mapping[str, str], keeper: LogWriter
    ) -> None:
        """Start it.

        Raises:
            OSError: it cannot be executed.
        """
        self.told: Told | None = None
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
            thread.join(SETTLE_S * 20)  # what it started may still hold the pipes
        return ended

    def _forward(self, info: signal.struct_siginfo) -> None:
        if info.si_signo in STOPS:
            self.told = Told(signal.Signals(info.si_signo), time.time())
        if info.si_signo == signal.SIGWINCH:
            for terminal in self._terminals:
                _copy_window_size(1, terminal)
        elif info.si_code != FROM_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(self.pid, info.si_signo)

    def _collect(self) -> Ending | None:
        """The command's end if it has ended; as process 1, also buries orphans."""
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
    """Copy until the end; a reader of ours that is gone does not end the command."""
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


# -- its runs -----------------------------------------------------------------------------------


def _place_console(places: Places, launch: str, keeper: LogWriter) -> None:
    with suppress(RlaError, OSError):
        for run in ask_status(places, ASK_TIMEOUT_S)["runs"]:
            if run.get("launch") == launch:
                keeper.place(run["root"], run["log_folder"])


def _streams_of(places: Places, launch: str) -> list[str]:
    """Streams in the spool that this command's runs write or wrote."""
    found: list[str] = []
    with suppress(OSError):
        for name in stream_names(places.spool):
            with suppress(RlaError, OSError):
                if read_opening(places.spool / name)[0].launch == launch:
                    found.append(name)
    return found


def _settle(places: Places, keeping: AgentKeeper, launch: Launch, keeper: LogWriter, deadline: float) -> None:
    """Wait for the data and the ends of the runs, then note how the command ended."""
    left: set[str] = set(_streams_of(places, launch.name))
    while keeping.serves(deadline) and left:
        left = wait_durable(places, left, deadline)
        if agent_alive(places):
            break  # else it was another job's, which ended: the next one continues
    while not left and time.monotonic() < deadline:
        ended = [name for name in _streams_of(places, launch.name) if not writer_alive(places.spool / name)]
        if not ended or not keeping.serves(deadline):
            break
        time.sleep(SETTLE_S)
    try:
        note_ending(places, launch, keeper, max(0.0, min(deadline - time.monotonic(), RUN_FILE_WAIT_S)))
    except (RlaError, OSError, sqlite3.Error) as error:
        sys.stderr.write(f"rla-agent run: how the command ended is not noted: {error}\n")
    if not keeper.finish(time.monotonic() + RUN_FILE_WAIT_S + SETTLE_S * 20):
        sys.stderr.write(
            "rla-agent run: a data root does not answer: console.txt and run.json are written once it does\n"
        )
    if left:
        sys.stderr.write(
            f"rla-agent run: {len(left)} streams are not durable within the limit; they wait in "
            f"{places.spool}; later: rla-agent drain\n"
        )


def _await_agent(places: Places, deadline: float) -> None:
    """Let one that was just started get ready."""
    while time.monotonic() < deadline and not places.stopped:
        if agent_alive(places) and read_holder(places).get("pid"):
            return
        time.sleep(SETTLE_S)


def note_ending(places: Places, launch: Launch, keeper: LogWriter, wait_s: float) -> None:
    """Write exit code or signal into agent.db and run.json of the launch's runs that have ended.

    `keeper` writes the files, and waits `wait_s` for the agent's last run.json of each run.
    """
    if not places.database.exists():
        return
    with closing(AgentDatabase(places.database, beside=True)) as database:
        plains = [run for run in database.runs() if run.get("launch") == launch.name]
        last = max((run["opened"] for run in plains), default=0.0)
        for plain in plains:
            before = RunRecord.from_plain(plain)
            keeper.place(before.root, before.log_folder)
            record = ended_record(before, launch, last=before.opened >= last)
            if record is not None:
                now = time.time()
                content = {**plain, **record.to_plain(now)}
                database.commit(Changes(runs=[(record.run, now, record.live, content)]))
                keeper.write_run_file(record.root, record.log_folder, content, wait_s)
                for line in lost_lines(content):
                    sys.stderr.write(f"rla-agent run: {record.table}/{record.index}: {line}\n")


def ended_record(record: RunRecord, launch: Launch, *, last: bool = True) -> RunRecord | None:
    """The record with the command's end in it; None while the run continues: see `process_ended`."""
    if record.live:
        return None
    ending, told = launch.ending, launch.told
    after = replace(record, exit_code=ending.code, signal=ending.signal)
    return after.process_ended(
        ending.words,
        own=record.pid == launch.pid,
        last=last,
        told=told.number.name if told is not None and told.ended(record) else "",
    )
