"""Process of an attempt.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from rla_client.contract.process.locks import try_lock
from rla_client.sweep.engines.base import Work

# Writes the group's number, then runs the program. The shell survives signals to the group, to write the
# status.
SCRIPT = """echo $$ >"$1"; file="$2"; shift 2; trap : TERM INT HUP
"$@"; code=$?; echo $code >"$file"; exit $code"""
IGNORING = 'trap "" "$1"; shift; '
ENDING = "trap 'kill 0' EXIT; "  # ends processes that the program left in the group, which is the shell's own
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NOT_STARTED = 126


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
