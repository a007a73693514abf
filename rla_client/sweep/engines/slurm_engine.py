"""Engine of sweeps on Slurm.

Submissions are numbered. Before a submission, `slurm/0007.plan` in the sweep's folder lists the runs of
its jobs, in order; the name of its jobs has the sweep's ident and that number. So a driver finds jobs that
an earlier one submitted but could not note; and a job knows whether a later one was submitted for its run.

The state of all jobs comes from `squeue`, which every cluster has, every other second; the exit status of
a program is in its exit file. A job that has disappeared without one was cancelled or killed, or lost its
machine and may not be requeued.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.sweep.engines.attempt_files import exit_status, tail
from rla_client.sweep.engines.base import AttemptEnded, Work
from rla_client.sweep.engines.slurm_job import PLAN, SlurmAttempt, job_file
from rla_client.sweep.engines.slurm_parameters import parameters_of, whole_number
from rla_client.sweep.journal import Journal, SweepError

if TYPE_CHECKING:
    import submitit

    from rla_client.sweep.spec import Spec


PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
FOLDER = "slurm"
LOOK_S = 2.0  # between queries of slurmctld, which some sites limit
ASK_TIMEOUT_S = 60.0
AGAIN_S = 30.0  # before another submission to a busy or restarting slurmctld
IN_QUEUE = 1000  # largest number of jobs; a common MaxArraySize and limit per user
LEARNING = 8  # runs at a time for a learning sampler
MAX_PLAN_BYTES = 1 << 20
MAX_WORDS = 500  # jobs in one command
LOOKS = 2  # checks of an ended job without exit status, which a shared file system may show late
LOOKS_COMPLETED = 30  # the same for a completed job, which must have one
TAIL_BYTES = 2048
ENDS = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED", "TIMEOUT",
})  # fmt: skip
GONE = "GONE"
UNREADABLE = "RaisedSignal:53"  # reason of a job that cannot open its output file on its node
UNKNOWN = "Invalid job id specified"  # error of squeue if it knows none of the jobs
BUSY = re.compile(
    r"unable to contact|socket timed out|connection (refused|reset|timed out)|temporarily unable|"
    r"resource temporarily|zero bytes were transmitted|transport endpoint|communication connection",
    re.IGNORECASE,
)  # transient errors, after which the job may or may not be submitted
_DISTRIBUTED = frozenset({"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
_KEPT = frozenset(
    {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER"}
)  # variables of the cluster, not of a job


@dataclass(slots=True)
class _Job:
    """A supervised job."""

    work: Work
    handle: str = ""  # its number; empty: not submitted yet
    looks: int = 0  # how often it was seen as ended


class _Seen(NamedTuple):
    """A job in the output of squeue."""

    state: str
    reason: str
    name: str


class SlurmEngine:
    """Engine on a Slurm cluster."""

    name = "slurm"
    handle = ""

    def __init__(self, spec: Spec, journal: Journal) -> None:
        _check()
        self._learns = spec.method == "optuna"
        self._parallel = spec.resources.parallel or (LEARNING if self._learns else None)
        options = dict(spec.options.get("slurm", {}))
        self._in_queue = whole_number("in_queue", options.pop("in_queue", IN_QUEUE))
        self._parameters = parameters_of(spec.resources, options)
        configuration = _configuration()
        self._in_array = int(configuration.get("MaxArraySize", IN_QUEUE))
        self._forwards = (
            configuration.get("ProctrackType") == "proctrack/cgroup"
        )  # signals only its own child
        self._folder = journal.folder / FOLDER
        self._name = f"rla-{journal.name}-{journal.ident}"
        self._jobs: dict[int, _Job] = {}
        self._ended: list[AttemptEnded] = []
        self._found: dict[str, _Seen] | None = None  # by `adopt`
        self._looked = self._tried = 0.0
        self._unsent = ""  # name of jobs that Slurm may or may not have accepted
        self._began = False  # whether any job has started

    def room(self) -> int:
        """See `Engine.room`; with `parallel`, the first array limits itself, later ones fill up."""
        if self._unsent:
            return 0
        if self._parallel is not None and (self._jobs or self._learns):
            return max(self._parallel - len(self._jobs), 0)
        return min(max(self._in_queue - len(self._jobs), 0), self._in_array)

    def start(self, works: Sequence[Work]) -> list[str]:
        """See `Engine.start`; if Slurm does not answer, the jobs are submitted later."""
        jobs = [_Job(work) for work in works]
        self._submit(jobs)
        self._jobs.update((job.work.number, job) for job in jobs)
        return [job.handle for job in jobs]

    def adopt(self, work: Work, handle: str) -> bool:
        """See `Engine.adopt`; an ended job that Slurm still knows is adopted, too, until its end is reported.

        Raises:
            SweepError: Slurm does not answer.
        """
        if self._found is None:
            self._found = _squeue("-u", str(os.getuid()))
        if self._found is None:
            raise SweepError(
                "squeue does not answer: which jobs are left cannot be known\nhint: try again later"
            )
        handle = handle or self._find(work.number, self._found)
        if handle not in self._found:
            return False
        if not self._path(handle, "submitted.pkl").exists():  # the driver was killed during the submission
            _ask("scancel", handle)
            return False
        self._jobs[work.number] = _Job(work, handle)
        return True

    def ended(self, timeout_s: float) -> list[AttemptEnded]:
        """See `Engine.ended`."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._unsent and time.monotonic() - self._tried >= AGAIN_S:
                self._submit([job for job in self._jobs.values() if not job.handle])
            if time.monotonic() - self._looked >= LOOK_S:
                self._looked = time.monotonic()
                self._look()
            wait_s = min(deadline, self._looked + LOOK_S) - time.monotonic()
            if self._ended or time.monotonic() >= deadline:
                break
            time.sleep(max(wait_s, 0))
        found, self._ended = self._ended, []
        return found

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """See `Engine.stop`; Slurm kills what is left of a job after its KillWait."""
        handles = [job.handle for number in numbers if (job := self._jobs.get(number)) and job.handle]
        for job in list(self._jobs.values()) if self._unsent else ():
            if not job.handle:
                self._tell(job, None, "was not submitted")
        self._forget_unsent()
        for at in range(0, len(handles), MAX_WORDS):
            some = handles[at : at + MAX_WORDS]
            _ask("scancel", *some)
            if kill:
                _ask("scancel", "--signal=KILL", *some)

    def close(self) -> None:
        """See `Engine.close`; jobs continue."""

    def _submit(self, jobs: Sequence[_Job]) -> None:
        """Submit jobs as one array; raises SweepError if Slurm refuses them."""
        from submitit.core.utils import FailedJobError, FailedSubmissionError  # noqa: PLC0415 - an extra

        self._tried = time.monotonic()
        self._forget_unsent()
        self._folder.mkdir(exist_ok=True)
        number = max(self._plans(), default=0) + 1
        plan = self._folder / f"{number:04d}{PLAN}"
        write_atomic(plan, " ".join(str(job.work.number) for job in jobs).encode())
        name = f"{self._name}-{plan.stem}"
        try:
            with _outside_of_jobs():
                submitted = self._executor(name, len(jobs)).submit_array(
                    [SlurmAttempt(job.work, str(plan), self._forwards) for job in jobs]
                )
        except (FailedJobError, FailedSubmissionError) as error:
            if not BUSY.search(str(error)):
                plan.unlink()
                raise SweepError(_refusal(str(error))) from error
            self._unsent = name
            return
        for job, one in zip(jobs, submitted, strict=True):
            job.handle = str(one.job_id)

    def _executor(self, name: str, count: int) -> submitit.SlurmExecutor:
        import submitit  # noqa: PLC0415 - an extra

        executor = submitit.SlurmExecutor(self._folder)
        parallel = min(self._parallel or count, count)
        executor.update_parameters(**self._parameters, job_name=name, array_parallelism=parallel)
        return executor

    def _forget_unsent(self) -> None:
        """Cancel jobs that Slurm may have accepted without an answer; without their files they cannot run."""
        if self._unsent:
            _ask("scancel", f"--name={self._unsent}", f"--user={os.getuid()}")
            self._unsent = ""

    def _plans(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob(f"*{PLAN}"))

    def _find(self, number: int, seen: Mapping[str, _Seen]) -> str:
        """Handle of the last job submitted for a run; empty if squeue does not list it."""
        for plan in reversed(self._plans()):
            runs = read_small(self._folder / f"{plan:04d}{PLAN}", MAX_PLAN_BYTES).decode().split()
            if str(number) in runs:
                end = f"_{runs.index(str(number))}" if len(runs) > 1 else ""
                name = f"{self._name}-{plan:04d}"
                return next((one for one in seen if seen[one].name == name and one.endswith(end)), "")
        return ""

    def _look(self) -> None:
        """Find ended jobs."""
        numbers = {job.handle.partition("_")[0] for job in self._jobs.values() if job.handle}
        seen = _squeue("-j", ",".join(sorted(numbers))) if numbers else {}
        if seen is None:
            return  # slurmctld does not answer
        for job in list(self._jobs.values()):
            found = seen.get(job.handle, _Seen(GONE, "", ""))
            if not job.handle or (found.state not in ENDS and found.state != GONE):
                job.looks = 0
            else:
                self._look_at_end(job, found)

    def _look_at_end(self, job: _Job, found: _Seen) -> None:
        with suppress(OSError):  # opening the folder makes a network file system refresh it
            os.close(os.open(os.path.dirname(job.work.exit), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        job.looks += 1
        status = exit_status(job.work.exit)
        if status is None and job.looks < (LOOKS_COMPLETED if found.state == "COMPLETED" else LOOKS):
            return
        self._began = self._began or job_file(job.work).exists()
        log = self._path(job.handle, "0_log.err")
        if status is None and not self._began and found.reason.startswith(UNREADABLE) and not log.exists():
            raise SweepError(
                f"job {job.handle} could not write into {self._folder} on its node\n"
                "hint: the data root must be a folder that all nodes share"
            )
        state = "is gone" if found.state == GONE else f"ended as {found.state}"
        text = tail(log, TAIL_BYTES).decode(errors="replace").strip() if status is None else ""
        last_line = text.rpartition("\n")[2].strip()
        self._tell(job, status, f"job {job.handle} {state}" + (f": {last_line}" if last_line else ""))

    def _tell(self, job: _Job, status: int | None, reason: str) -> None:
        self._ended.append(AttemptEnded(job.work.number, status, "" if status is not None else reason))
        del self._jobs[job.work.number]
        if job.handle and status is not None:
            for name in ("submitted.pkl", "0_result.pkl", "0_log.out", "0_log.err"):
                self._path(job.handle, name).unlink(missing_ok=True)

    def _path(self, handle: str, name: str) -> Path:
        """Path of a file of submitit."""
        return self._folder / f"{handle}_{name}"


def _check() -> None:
    """Raise SweepError if Slurm or submitit is not installed."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise SweepError(
                f"there is no {program} here\nhint: start the sweep where jobs of Slurm are submitted"
            )
    if find_spec("submitit") is None:
        raise SweepError("Slurm needs submitit\nhint: pip install 'rla-agent[slurm]'")


def _configuration() -> dict[str, str]:
    """Configuration of slurmctld; raises SweepError if it does not answer."""
    done = _ask("scontrol", "show", "config")
    if done.returncode:
        raise SweepError(f"Slurm does not answer: {_refusal(done.stderr)}")
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _squeue(*which: str) -> dict[str, _Seen] | None:
    """Those of some jobs that slurmctld knows, by number; None if it does not answer."""
    done = _ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r|%j", *which)
    if done.returncode:
        return {} if UNKNOWN in done.stderr else None
    words = (line.strip().split("|", 3) for line in done.stdout.splitlines())
    return {word[0]: _Seen(*word[1:]) for word in words if len(word) == 4}  # noqa: PLR2004 - the fields of `-o`


def _ask(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm; one that does not end in time has failed."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C must only reach the driver
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]} did not end in {ASK_TIMEOUT_S:.0f} s")


@contextmanager
def _outside_of_jobs() -> Iterator[None]:
    """Hide variables that identify a job or rank, because jobs inherit their submitter's variables."""
    from rla_client.run.rank_variables import RANK_VARIABLES  # noqa: PLC0415 - not on the node

    hidden = {
        name: value
        for name, value in os.environ.items()
        if name in {*RANK_VARIABLES, *_DISTRIBUTED}
        or name.startswith("SUBMITIT_")
        or ("SLURM_JOB_ID" in os.environ and name.startswith(("SLURM", "SRUN_")) and name not in _KEPT)
    }
    for name in hidden:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden)


def _refusal(text: str) -> str:
    """Message of sbatch's refusal, with a hint."""
    lines = [line.strip().removeprefix("sbatch: ").removeprefix("error: ") for line in text.splitlines()]
    reason = "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith("Try ")))
    if "option" in reason:
        reason += "\nhint: the entries of slurm: are options of sbatch, without the dashes"
    elif "MaxSubmit" in reason or "job array" in reason.lower():
        reason += "\nhint: slurm: {in_queue: 100} has fewer jobs in the queue at a time"
    return f"Slurm refuses the jobs: {reason}"
