"""Interface of sweep engines.

A shell around the program, which outlives the driver, writes its exit status to a file. Both hold an open,
locked file. So a driver that was gone still learns how it ended; while the lock is held, one of its processes
lives. A run with a free lock and no exit status was killed together with its shell.
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

# the group's number, then the program; a signal to the group ends the program, not the shell before it wrote
SCRIPT = """echo $$ >"$1"; told="$2"; shift 2; trap : TERM INT HUP
"$@"; code=$?; echo $code >"$told"; exit $code"""
IGNORING = 'trap "" "$1"; shift; '
ENDING = "trap 'kill 0' EXIT; "  # what the program left in its group, which is the shell's own
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BY_SIGNAL = 128  # a shell's status of a program that was ended by signal n is 128 + n
NOT_STARTED = 126
STARTING_S = 5.0  # from the lock to the shell's first line
POLL_S = 0.05
KILLS = frozenset({1, 2, 3, 9, 15})  # signals from outside; others are the program's own faults
MAX_STATUS_BYTES = 64
PACE_S = 1.0  # over which it is counted what ends
AHEAD_S = 0.25  # so much of what ends is handed on ahead


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt of one run."""

    number: int  # of the run
    command: tuple[str, ...]  # program and arguments
    environment: Mapping[str, str]  # variables beside those that are there
    folder: str  # in which it works
    output: str  # file that gets what it prints
    exit: str  # file for its exit status
    lock: str  # file that its processes hold


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt is over."""

    number: int  # of the run
    status: int | None  # as a shell's; None: it is gone and nothing tells
    reason: str = ""  # what its engine knows of it


class Engine(Protocol):
    """Starts runs and tells of their ends. One thread calls it.

    Attributes:
        name: of the engine.
        handle: by which `adopt` finds runs for which `start` gives no handle of their own.
    """

    name: str
    handle: str

    def room(self) -> int:
        """How many runs it would start now."""

    def start(self, works: Sequence[Work]) -> list[str]:
        """Start these, for which there is room.

        Returns:
            The handle of each, by which `adopt` finds it again; it may be empty.

        Raises:
            SweepError: it takes none.
        """

    def adopt(self, work: Work, handle: str) -> bool:
        """Look after a run that an earlier driver started, until its end is told; False where none lives.

        Raises:
            SweepError: it lives, where this engine cannot look after it.
        """

    def ended(self, timeout_s: float) -> list[AttemptEnded]:
        """The ends since the last call; waits for the first for so long."""

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """Ask these to end (SIGTERM), or end them; their ends are told as others."""

    def close(self) -> None:
        """Let go of everything; what runs continues where the engine can leave it."""


def find_program(work: Work, environment: Mapping[str, str]) -> str:
    """The path of a run's program.

    Raises:
        FileNotFoundError: there is none.
    """
    program = work.command[0]
    found = program if os.sep in program else shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "there is no such program", program)
    return found if os.sep in found else os.path.join(os.curdir, found)  # below a relative folder of PATH


def _past_shell(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Words before a program that give it what a shell cannot name and drops: exported functions of bash."""
    dropped = [f"{name}={value}" for name, value in environment.items() if not _VARIABLE.fullmatch(name)]
    return ("/usr/bin/env", *dropped) if dropped else ()


def _check_executable(path: str) -> None:
    """Raise what the start of a program would; the shell around it would only print it."""
    if not os.access(path, os.X_OK):
        problem = errno.EACCES if os.path.exists(path) else errno.ENOENT
        raise OSError(problem, os.strerror(problem), path)


@contextmanager
def opened(work: Work) -> Iterator[tuple[int, int]]:
    """The descriptors of an attempt's output and of its lock, which is locked; an earlier status is gone.

    Raises:
        OSError: they cannot be made.
    """
    for path in (work.exit, work.lock):  # what an earlier attempt left running holds the former lock
        with suppress(FileNotFoundError):
            os.unlink(path)
    output = os.open(
        work.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
    )
    try:
        lock = os.open(work.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with suppress(OSError):  # a file system without locks: then only the exit status tells
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
        work: what to start.
        environment: all its variables.
        held: descriptors of further locks that its processes shall hold.
        shell: below a shell that writes its exit status; False: who calls this outlives it and does that.
        ignores: it is part of a batch job, whose processes are found by their group and session: it stays in
            those of this process, and ignores the signal of this name, as long as it does not handle it.

    Raises:
        OSError: it cannot be started; nothing was.
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
    """What the shell around an attempt wrote; None where it did not."""
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
    """Whether a process of the run lives, or is just being started; False where locks cannot tell."""
    with suppress(OSError), _opened_lock(lock) as descriptor:
        return os.fstat(descriptor).st_uid == os.geteuid() and not try_lock(descriptor, shared=True)
    return False


def is_released(lock: str, timeout_s: float) -> bool:
    """Whether nothing holds a lock file, or lets go of it in time; where it cannot be told, nothing does."""
    with suppress(OSError), _opened_lock(lock) as descriptor:
        return try_lock(descriptor, timeout_s=timeout_s)
    return True


def group_of(lock: str) -> int | None:
    """The process group of a run whose lock is held; None where none lives, or cannot be told.

    The lock is held before the group's number is in it: a run that is just being started is waited for.
    """
    with suppress(OSError), _opened_lock(lock) as descriptor:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return None
        deadline = time.monotonic() + STARTING_S
        while not try_lock(descriptor, shared=True):  # two may ask at a time
            text = os.pread(descriptor, 32, 0).decode(errors="replace")
            if text.endswith("\n") or time.monotonic() > deadline:
                return int(text) if text.strip().isdecimal() and int(text) > 1 else None
            time.sleep(POLL_S)
    return None


def tail(path: str | os.PathLike[str], most: int) -> bytes:
    """The last bytes of a file; nothing where it cannot be read."""
    with suppress(OSError), open(path, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - most, 0))
        return file.read()
    return b""


class Pace:
    """How many runs an engine hands on beyond those that run, so that no core waits for the driver.

    It counts ends; runs of more than some seconds lead to none ahead.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[float, int]] = deque()  # when how many

    def count(self, ended: int) -> None:
        """So many ended now."""
        self._ends.append((time.monotonic(), ended))

    def ahead(self) -> int:
        """How many to hand on beyond those that run."""
        now = time.monotonic()
        while self._ends and now - self._ends[0][0] > PACE_S:
            self._ends.popleft()
        return int(sum(count for _, count in self._ends) * AHEAD_S / PACE_S)
