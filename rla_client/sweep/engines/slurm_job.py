"""Slurm job of one run.

A run may have several jobs: a driver that was killed while it submitted one cannot know of it. The file
`runs/0001.job` is flocked by the one whose turn it is, and by the run's program; the others wait, and end
when a later submission names their run, or an exit status tells that it is done. SIGTERM (`scancel`) ends the
program. SIGUSR2, which Slurm sends before the time is up, ends it, too, and then the job goes back into the
queue, as one that is preempted does: the run continues at its last checkpoint.

Queued jobs name this module and `SlurmAttempt`, so these keep their names.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from rla_client.contract.process.locks import try_lock
from rla_client.sweep.engines.base import BY_SIGNAL, KILLS, Work, exit_status, start_program
from rla_client.sweep.journal import items_of

PLAN = ".plan"  # of a submission: the runs of its jobs, by which the newest of a run's jobs is told
WAIT_S = 1.0  # between two looks whether a job that waits for another was told to end
SAVE_S = 60.0  # for a program that is told to end before the time is up; Slurm gives 90 s
EXIT_TOLD = BY_SIGNAL + signal.SIGTERM


def job_file(work: Work) -> Path:
    """The file that is flocked by the job of a run, and names it."""
    return Path(work.lock).with_suffix(".job")


@dataclass(frozen=True, slots=True)
class SlurmAttempt:
    """The function of a job: its run, the file of its submission, and whether Slurm signals it alone."""

    work: Work
    plan: str
    forwards: bool

    def __call__(self) -> None:
        """Run it.

        Raises:
            SystemExit: it was told to end.
        """
        told = _Told(forwards=self.forwards)
        with self._turn(told) as lock:
            if lock is not None:
                self._run(lock, told)
        if told.number == told.requeue or (told.number and _is_preempted()):
            subprocess.run(["scontrol", "requeue", _job_id()], check=True, stdin=subprocess.DEVNULL)
        if told.number:
            sys.exit(EXIT_TOLD)

    @contextmanager
    def _turn(self, told: _Told) -> Iterator[int | None]:
        """Hold the run's lock; None where there is nothing to do, or this job is told to end before."""
        lock = os.open(job_file(self.work), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with suppress(OSError):  # a file system without locks
                while not (told.number or self._is_replaced() or try_lock(lock, timeout_s=WAIT_S)):
                    pass
            if told.number or self._is_replaced() or self._is_over():
                yield None
                return
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"job {_job_id()} on {socket.gethostname()}\n".encode(), 0)
            yield lock
        finally:
            os.close(lock)

    def _is_replaced(self) -> bool:
        """Whether another job was submitted for this run since."""
        own = Path(self.plan)
        return any(
            int(later.stem) > int(own.stem) and str(self.work.number) in later.read_text().split()
            for later in own.parent.glob(f"*{PLAN}")
        )

    def _is_over(self) -> bool:
        """Whether the run ended by itself, in another job or before this one was requeued."""
        status = exit_status(self.work.exit)
        return status is not None and status - BY_SIGNAL not in KILLS

    def _run(self, lock: int, told: _Told) -> None:
        ignores = signal.Signals(told.requeue).name.removeprefix("SIG")
        environment = os.environ | self.work.environment
        with told.while_runs(start_program(self.work, environment, (lock,), ignores=ignores)) as program:
            program.wait()
        if told.number:
            Path(self.work.exit).unlink(missing_ok=True)  # it did not end by itself
        _settle(self.work)


class _Told:
    """What this job was told by a signal."""

    def __init__(self, *, forwards: bool) -> None:
        from submitit import JobEnvironment  # noqa: PLC0415 - an extra

        self.number = 0  # of the signal; 0: nothing
        self.requeue = getattr(signal, f"SIG{JobEnvironment.USR_SIG}")  # by it, it goes back into the queue
        self._forwards = forwards
        self._program: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, self.requeue):
            signal.signal(number, self._handle)

    @contextmanager
    def while_runs(self, program: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Pass on to this program what comes meanwhile, or came before."""
        self._program = program
        if self.number:
            self._pass_on()
        try:
            yield program
        finally:
            self._program = None

    def _handle(self, number: int, _frame: object) -> None:
        if self.number:
            return
        self.number = number
        if self._program is not None:
            self._pass_on()

    def _pass_on(self) -> None:
        assert self._program is not None
        if self._forwards or self.number == self.requeue:
            _signal_all(self._program.pid, signal.SIGTERM)
        if self.number == self.requeue:  # a job that is cancelled is killed by Slurm
            timer = threading.Timer(SAVE_S, _signal_all, (self._program.pid, signal.SIGKILL))
            timer.daemon = True
            timer.start()


def _signal_all(shell: int, number: int) -> None:
    """Signal a program: all below its shell, which is to write down how it ended."""
    with suppress(psutil.NoSuchProcess):
        for one in psutil.Process(shell).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)


def _is_preempted() -> bool:
    """Whether another job is to have this one's place, once the time of grace is over."""
    done = subprocess.run(
        ["scontrol", "--oneliner", "show", "job", _job_id()],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return re.search(r"\bPreemptTime=\d", done.stdout) is not None


def _settle(work: Work) -> None:
    """Wait until the agent of this machine, which may end with the job, has written all of the run."""
    from rla_client.sweep.results import settled  # noqa: PLC0415 - it imports much

    for item in items_of(Path(work.environment["RLA_RUN_FILE"]))[-1:]:
        settled(item)


def _job_id() -> str:
    """As `squeue` shows it."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]
