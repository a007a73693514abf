"""Interface of sweep engines.

A shell around the program, which outlives the driver, writes its exit status to a file. Both hold a locked
file open. A later driver therefore learns how the program ended; while the lock is held, one of the run's
processes lives. A run with a free lock and no exit status was killed together with its shell.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from rla_client.contract.errors import RlaError
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.process.locks import try_lock

# Writes the group's number, then runs the program. The shell survives signals to the group, to write the
# status.
SCRIPT = """echo $$ >"$1"; file="$2"; shift 2; trap : TERM INT HUP
"$@"; code=$?; echo $code >"$file"; exit $code"""
IGNORING = 'trap "" "$1"; shift; '
ENDING = "trap 'kill 0' EXIT; "  # ends processes that the program left in the group, which is the shell's own
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BY_SIGNAL = 128  # a shell's status for a program ended by signal n is 128 + n
NOT_STARTED = 126
STARTING_S = 5.0  # from the lock to the shell's first line
POLL_S = 0.05
KILLS = frozenset({1, 2, 3, 9, 15})  # signals from outside; others are faults of the program
MAX_STATUS_BYTES = 64
PACE_S = 1.0  # window in which ends are counted
AHEAD_S = 0.25  # runs that end in this time are handed on ahead


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt of one run."""

    number: int  # of the run
    command: tuple[str, ...]  # program and arguments
    environment: Mapping[str, str]  # variables to add
    folder: str  # working folder
    output: str  # file for its output
    exit: str  # file for its exit status
    lock: str  # file that its processes hold locked


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """End of an attempt."""

    number: int  # of the run
    status: int | None  # as a shell's; None: unknown
    reason: str = ""  # by its engine


class Engine(Protocol):
    """Starts runs and reports their ends. Not thread-safe.

    Attributes:
        name: name of the engine.
        handle: default handle for `adopt` of runs for which `start` returns an empty one.
    """

    name: str
    handle: str

    def room(self) -> int:
        """Number of runs that can be started now."""

    def start(self, works: Sequence[Work]) -> list[str]:
        """Start runs, for which there must be room.

        Returns:
            The handle of each, by which `adopt` finds it again; it may be empty.

        Raises:
            SweepError: the engine cannot start runs.
        """

    def adopt(self, work: Work, handle: str) -> bool:
        """Supervise an earlier driver's run, until its end is reported; False if it does not live.

        Raises:
            SweepError: the run lives where this engine cannot supervise it.
        """

    def ended(self, timeout_s: float) -> list[AttemptEnded]:
        """The ends since the last call; waits up to `timeout_s` for the first."""

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """Ask runs to end (SIGTERM), or kill them; `ended` reports their ends."""

    def close(self) -> None:
        """Release all resources; runs continue if the engine can leave them."""


def find_program(work: Work, environment: Mapping[str, str]) -> str:
    """Path of a run's program.

    Raises:
        FileNotFoundError: there is no such program.
    """
    program = work.command[0]
    found = program if os.sep in program else shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program", program)
    return found if os.sep in found else os.path.join(os.curdir, found)  # found in a relative folder of PATH


def _past_shell(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Words before a program that restore variables a shell drops: exported functions of bash."""
    dropped = [f"{name}={value}" for name, value in environment.items() if not _VARIABLE.fullmatch(name)]
    return ("/usr/bin/env", *dropped) if dropped else ()


def _check_executable(path: str) -> None:
    """Raise the error of starting a program, which the shell around it would only print."""
    if not os.access(path, os.X_OK):
        problem = errno.EACCES if os.path.exists(path) else errno.ENOENT
        raise OSError(problem, os.strerror(problem), path)


@contextmanager
def opened(work: Work) -> Iterator[tuple[int, int]]:
    """Descriptors of an attempt's output and of its locked lock file; deletes an earlier exit status.

    Raises:
        OSError: the files cannot be made.
    """
    for path in (work.exit, work.lock):  # processes of an earlier attempt hold the former file
        with suppress(FileNotFoundError):
            os.unlink(path)
    output = os.open(
        work.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
    )
    try:
        lock = os.open(work.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with suppress(OSError):  # without locks on the file system, only the exit status is known
                try_lock(lock)
            yield output, lock
        finally:
            os.close(lock)
    finally:
        os.close(output)


def start_program(
    work: Work,
    environment: Mapping[str, str],
    held: Sequence[int] = (),
    *,
    shell: bool = True,
    ignores: str = "",
) -> subprocess.Popen[bytes]:
    """Start a run's program.

    Args:
        work: the attempt.
        environment: all its variables.
        held: descriptors of further locks for its processes to hold.
        shell: run it below a shell that writes its exit status; False: the caller outlives it and does that.
        ignores: name of a signal to ignore unless the program handles it; for a batch job, whose processes
            must
            stay in the group and session of this process.

    Raises:
        OSError: the program cannot be started; nothing was started.
    """
    found = find_program(work, environment)
    if shell and not ignores:
        _check_executable(os.path.join(work.folder, found))
    script = [IGNORING + SCRIPT, "rla-run", ignores] if ignores else [ENDING + SCRIPT, "rla-run"]
    around = ("/bin/sh", "-c", *script, work.lock, work.exit, *_past_shell(environment)) if shell else ()
    with opened(work) as (output, lock):
        process = subprocess.Popen(
            [*around, found, *work.command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=work.folder,
            env=dict(environment),
            pass_fds=(lock, *held),
            start_new_session=not ignores,
        )
        if not shell:
            os.write(lock, b"%d\n" % process.pid)
        return process


def exit_status(path: str | os.PathLike[str]) -> int | None:
    """Exit status in a file; None if it has not been written."""
    try:
        text = read_small(path, MAX_STATUS_BYTES).decode(errors="replace")
    except (OSError, RlaError):
        return None
    return int(text) if text.endswith("\n") and text.strip().isdecimal() else None


@contextmanager
def _opened_lock(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_held(lock: str) -> bool:
    """Whether a process of the run lives, or is being started; False without locks."""
    with suppress(OSError), _opened_lock(lock) as descriptor:
        return os.fstat(descriptor).st_uid == os.geteuid() and not try_lock(descriptor, shared=True)
    return False


def is_released(lock: str, timeout_s: float) -> bool:
    """Whether no process holds a lock file, at the latest after `timeout_s`; True without locks."""
    with suppress(OSError), _opened_lock(lock) as descriptor:
        return try_lock(descriptor, timeout_s=timeout_s)
    return True


def group_of(lock: str) -> int | None:
    """Process group of a run that holds its lock; None if none lives, or if it is unknown.

    The lock is held before the group's number is written, so this waits for a run that is being started.
    """
    with suppress(OSError), _opened_lock(lock) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return None
        deadline = time.monotonic() + STARTING_S
        while not try_lock(descriptor, shared=True):  # shared: two processes may check at once
            text = os.pread(descriptor, 32, 0).decode(errors="replace")
            if text.endswith("\n") or time.monotonic() > deadline:
                return int(text) if text.strip().isdecimal() and int(text) > 1 else None
            time.sleep(POLL_S)
    return None


def tail(path: str | os.PathLike[str], most: int) -> bytes:
    """The last bytes of a file; empty if it cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
        return file.read()
    return b""


class Pace:
    """Number of runs that an engine hands on beyond the running ones, so that no core waits for the driver.

    It follows from the rate of ends; runs of more than a few seconds lead to none.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()  # when how many

    def count(self, ended: int) -> None:
        """Count ends as of now."""
        self._ends.append((time.monotonic(), ended))

    def ahead(self) -> int:
        """Number of runs to hand on beyond the running ones."""
        now = time.monotonic()
        while self._ends and now - self._ends[0][0] > PACE_S:
            self._ends.popleft()
        return int(sum(count for _, count in self._ends) * AHEAD_S / PACE_S)
