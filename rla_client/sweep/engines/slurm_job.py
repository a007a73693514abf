"""Slurm job of one run.

A run may have several jobs, because a driver that is killed during a submission does not know the new job.
One job at a time, and the run's program, hold the lock of `runs/0001.job`; the others wait, and end when a
later submission lists their run, or when the exit status shows that it is over. SIGTERM (`scancel`) ends the
program. SIGUSR2, which Slurm sends before the time is up, also ends it, and the job is requeued, like a
preempted one: the run continues at its last checkpoint.

Queued jobs refer to this module and `SlurmAttempt` by name, so these keep their names.
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
from rla_client.sweep.engines.attempt_files import BY_SIGNAL, KILLS, exit_status
from rla_client.sweep.engines.attempt_process import start_program
from rla_client.sweep.engines.base import Work
from rla_client.sweep.journal import items_of

PLAN = ".plan"  # ending of a submission's file, which lists the runs of its jobs
WAIT_S = 1.0  # between checks for a signal while waiting for another job
SAVE_S = 60.0  # for a program to save and end before the time is up; Slurm gives 90 s
EXIT_SIGNALLED = BY_SIGNAL + signal.SIGTERM


def job_file(work: Work) -> Path:
    """File that the job of a run locks, and that holds the job's number."""
    return Path(work.lock).with_suffix(".job")


@dataclass(frozen=True, slots=True)
class SlurmAttempt:
    """Function of a job.

    Attributes:
        work: the attempt.
        plan: file of the submission.
        forwards: whether Slurm signals only this process, which must forward signals.
    """

    work: Work
    plan: str
    forwards: bool

    def __call__(self) -> None:
        """Run the attempt.

        Raises:
            SystemExit: a signal asked the job to end.
        """
        signals = _Signals(forwards=self.forwards)
        with self._turn(signals) as lock:
            if lock is not None:
                self._run(lock, signals)
        if signals.number == signals.requeue or (signals.number and _is_preempted()):
            subprocess.run(["scontrol", "requeue", _job_id()], check=True, stdin=subprocess.DEVNULL)
        if signals.number:
            sys.exit(EXIT_SIGNALLED)

    @contextmanager
    def _turn(self, signals: _Signals) -> Iterator[int | None]:
        """Hold the run's lock; None if nothing is to be done, or if a signal asked this job to end."""
        lock = os.open(job_file(self.work), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            with suppress(OSError):  # a file system without locks
                while not (signals.number or self._is_replaced() or try_lock(lock, timeout_s=WAIT_S)):
                    pass
            if signals.number or self._is_replaced() or self._is_over():
                yield None
                return
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"job {_job_id()} on {socket.gethostname()}\n".encode(), 0)
            yield lock
        finally:
            os.close(lock)

    def _is_replaced(self) -> bool:
        """Whether a later job was submitted for this run."""
        own = Path(self.plan)
        return any(
            int(later.stem) > int(own.stem) and str(self.work.number) in later.read_text().split()
            for later in own.parent.glob(f"*{PLAN}")
        )

    def _is_over(self) -> bool:
        """Whether the run ended by itself, in another job or before a requeue of this one."""
        status = exit_status(self.work.exit)
        return status is not None and status - BY_SIGNAL not in KILLS

    def _run(self, lock: int, signals: _Signals) -> None:
        ignores = signal.Signals(signals.requeue).name.removeprefix("SIG")
        environment = os.environ | self.work.environment
        with signals.while_runs(start_program(self.work, environment, (lock,), ignores=ignores)) as program:
            program.wait()
        if signals.number:
            Path(self.work.exit).unlink(missing_ok=True)  # it did not end by itself
        _settle(self.work)


class _Signals:
    """Signals of Slurm to this job."""

    def __init__(self, *, forwards: bool) -> None:
        from submitit import JobEnvironment  # noqa: PLC0415 - an extra

        self.number = 0  # first received signal; 0: none
        self.requeue = getattr(
            signal, f"SIG{JobEnvironment.USR_SIG}"
        )  # signal after which the job is requeued
        self._forwards = forwards
        self._program: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, self.requeue):
            signal.signal(number, self._handle)

    @contextmanager
    def while_runs(self, program: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
        """Forward signals to this program while it runs, including one received before."""
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
        if self.number == self.requeue:  # Slurm itself kills a cancelled job
            timer = threading.Timer(SAVE_S, _signal_all, (self._program.pid, signal.SIGKILL))
            timer.daemon = True
            timer.start()


def _signal_all(shell: int, number: int) -> None:
    """Signal all processes below a program's shell, but not the shell, which writes the exit status."""
    with suppress(psutil.NoSuchProcess):
        for one in psutil.Process(shell).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)


def _is_preempted() -> bool:
    """Whether another job preempts this one after its grace time."""
    done = subprocess.run(
        ["scontrol", "--oneliner", "show", "job", _job_id()],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    return re.search(r"\bPreemptTime=\d", done.stdout) is not None


def _settle(work: Work) -> None:
    """Wait until this machine's agent, which may end with the job, has written all rows of the run."""
    from rla_client.sweep.results import settled  # noqa: PLC0415 - it imports much

    for item in items_of(Path(work.environment["RLA_RUN_FILE"]))[-1:]:
        settled(item)


def _job_id() -> str:
    """Id of this job, as in `squeue`."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]
