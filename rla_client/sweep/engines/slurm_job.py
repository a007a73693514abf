"""Runs as job arrays of Slurm, submitted by submitit.

A submission has a number. Before it is made, `slurm/0007.plan` in the sweep's folder names the runs of its
jobs, in their order, and the name of its jobs holds the sweep's ident and that number. So a driver finds jobs
that an earlier one submitted and could not note down any more; and a job sees whether a later one was
submitted for its run.

What becomes of jobs is asked of `squeue`, which every cluster has, every other second and for all at once;
how a program ended is in its exit file. A job that is gone without one was cancelled or killed, or lost its
machine where it may not be requeued.

**A job** waits for its turn, starts the program of its run, and ends or is requeued. A run may have several
jobs: a driver that was killed while it submitted one cannot know of it. The file `runs/0001.job` is flocked
by the one whose turn it is, and by the run's program; the others wait, and end when a later submission names
their run, or an exit status tells that it is done. SIGTERM (`scancel`) ends the program. SIGUSR2, which Slurm
sends before the time is up, ends it, too, and then the job goes back into the queue, as one that is preempted
does: the run continues at its last checkpoint.

Queued jobs name this module and `Attempt`, so these keep their names.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.plain_files import read_small
from rla_client.contract.process.locks import try_lock
from rla_client.sweep.engines.base import KILLS, Ended, Work, exit_status, start_program, tail
from rla_client.sweep.engines.supervisor import BY_SIGNAL
from rla_client.sweep.journal import Journal, SweepError, items_of

if TYPE_CHECKING:
    import submitit

    from rla_client.sweep.spec import Resources, Spec

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol")
FOLDER = "slurm"
LOOK_S = 2.0  # between two questions to slurmctld: some sites count them
ASK_TIMEOUT_S = 60.0
AGAIN_S = 30.0  # until jobs are submitted again that a busy or restarting slurmctld did not take
IN_QUEUE = 1000  # jobs at most, as MaxArraySize and limits of users often are
LEARNING = 8  # at a time, where a sampler is to learn from those before
MAX_PLAN_BYTES = 1 << 20
MAX_WORDS = 500  # jobs that one command names
LOOKS = 2  # at a job that is gone and left no exit status: it may be on its way through a shared file system
LOOKS_COMPLETED = 30  # the same of one that Slurm says to have ended well: there must be one
TAIL_BYTES = 2048
ENDS = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED", "TIMEOUT",
})  # fmt: skip
GONE = "GONE"
UNREADABLE = "RaisedSignal:53"  # what a job ends with whose output file cannot be opened on its node
UNKNOWN = "Invalid job id specified"  # squeue, where it knows none of these
BUSY = re.compile(
    r"unable to contact|socket timed out|connection (refused|reset|timed out)|temporarily unable|"
    r"resource temporarily|zero bytes were transmitted|transport endpoint|communication connection",
    re.IGNORECASE,
)  # what says that a job was not taken, or perhaps was, for reasons that pass
OWN = {
    "array": "the runs of a sweep are the array",
    "error": "what a run prints is in the sweep's folder",
    "output": "what a run prints is in the sweep's folder",
    "open_mode": "what a run prints is in the sweep's folder",
    "job_name": "jobs are found by their name",
    "name": "jobs are found by their name",
    "chdir": "runs start where the sweep was begun",
    "wrap": "what is run is said by command",
    "signal": "it is used to requeue jobs whose time is up",
    "nodes": "a run is one process on one node",
    "ntasks": "a run is one process on one node",
    "ntasks_per_node": "a run is one process on one node",
    "array_parallelism": "write resources: {parallel: 8}",
}
_DISTRIBUTED = frozenset({"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
_KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CONF_SERVER"})  # which Slurm, not which job
PLAN = ".plan"  # of a submission: the runs of its jobs, by which the newest of a run's jobs is told
WAIT_S = 1.0  # between two looks whether a job that waits for another was told to end
SAVE_S = 60.0  # for a program that is told to end before the time is up; Slurm gives 90 s
EXIT_TOLD = BY_SIGNAL + signal.SIGTERM


@dataclass(slots=True)
class _Job:
    """A job that is looked after."""

    work: Work
    handle: str = ""  # its number; empty: it is not submitted yet
    looks: int = 0  # how often it was seen to be over


class _Seen(NamedTuple):
    """What squeue says of a job."""

    state: str
    reason: str
    name: str


class SlurmEngine:
    """See the module."""

    name = "slurm"
    handle = ""

    def __init__(self, spec: Spec, journal: Journal) -> None:
        _check()
        self._learns = spec.method == "optuna"
        self._parallel = spec.resources.parallel or (LEARNING if self._learns else None)
        options = dict(spec.options.get("slurm", {}))
        self._in_queue = _whole("in_queue", options.pop("in_queue", IN_QUEUE))
        self._parameters = parameters_of(spec.resources, options)
        told = _configuration()
        self._in_array = int(told.get("MaxArraySize", IN_QUEUE))
        self._forwards = told.get("ProctrackType") == "proctrack/cgroup"  # it signals its own child alone
        self._folder = journal.folder / FOLDER
        self._name = f"rla-{journal.name}-{journal.ident}"
        self._jobs: dict[int, _Job] = {}
        self._ended: list[Ended] = []
        self._found: dict[str, _Seen] | None = None  # by `adopt`
        self._looked = self._tried = 0.0
        self._unsent = ""  # the name of jobs of which it is not known whether Slurm took them
        self._began = False  # whether any job ever did

    def room(self) -> int:
        """As `Engine.room`: with `parallel`, the first array keeps to it itself, later ones fill up."""
        if self._unsent:
            return 0
        if self._parallel is not None and (self._jobs or self._learns):
            return max(self._parallel - len(self._jobs), 0)
        return min(max(self._in_queue - len(self._jobs), 0), self._in_array)

    def start(self, works: Sequence[Work]) -> list[str]:
        """As `Engine.start`; where Slurm does not answer they are submitted later."""
        jobs = [_Job(work) for work in works]
        self._submit(jobs)
        self._jobs.update((job.work.number, job) for job in jobs)
        return [job.handle for job in jobs]

    def adopt(self, work: Work, handle: str) -> bool:
        """As `Engine.adopt`; a job that is over, but known yet, is looked after until that is told.

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
        if not self._path(handle, "submitted.pkl").exists():  # the driver was killed while it submitted
            _ask("scancel", handle)
            return False
        self._jobs[work.number] = _Job(work, handle)
        return True

    def ended(self, timeout_s: float) -> list[Ended]:
        """As `Engine.ended`."""
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
        """As `Engine.stop`: of a job that runs, Slurm kills what is left after its KillWait."""
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
        """As `Engine.close`: jobs continue."""

    # -- submitting -----------------------------------------------------------------------------

    def _submit(self, jobs: Sequence[_Job]) -> None:
        """Submit these as one array; SweepError: Slurm takes none such."""
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
                    [Attempt(job.work, str(plan), self._forwards) for job in jobs]
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
        """Slurm may have taken them and only its answer was lost; they have no files, and cannot run."""
        if self._unsent:
            _ask("scancel", f"--name={self._unsent}", f"--user={os.getuid()}")
            self._unsent = ""

    def _plans(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob(f"*{PLAN}"))

    def _find(self, number: int, seen: Mapping[str, _Seen]) -> str:
        """The handle of the last job that was submitted for a run, as far as it is seen."""
        for plan in reversed(self._plans()):
            runs = read_small(self._folder / f"{plan:04d}{PLAN}", MAX_PLAN_BYTES).decode().split()
            if str(number) in runs:
                end = f"_{runs.index(str(number))}" if len(runs) > 1 else ""
                name = f"{self._name}-{plan:04d}"
                return next((one for one in seen if seen[one].name == name and one.endswith(end)), "")
        return ""

    # -- watching -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Find out which jobs are over."""
        numbers = {job.handle.partition("_")[0] for job in self._jobs.values() if job.handle}
        seen = _squeue("-j", ",".join(sorted(numbers))) if numbers else {}
        if seen is None:
            return  # slurmctld is away: nothing is known
        for job in list(self._jobs.values()):
            found = seen.get(job.handle, _Seen(GONE, "", ""))
            if not job.handle or (found.state not in ENDS and found.state != GONE):
                job.looks = 0
            else:
                self._look_at_end(job, found)

    def _look_at_end(self, job: _Job, found: _Seen) -> None:
        with suppress(OSError):  # opening the folder has a network file system ask what is new in it
            os.close(os.open(os.path.dirname(job.work.exit), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        job.looks += 1
        status = exit_status(job.work.exit)
        if status is None and job.looks < (LOOKS_COMPLETED if found.state == "COMPLETED" else LOOKS):
            return
        self._began = self._began or _job_file(job.work).exists()
        log = self._path(job.handle, "0_log.err")
        if status is None and not self._began and found.reason.startswith(UNREADABLE) and not log.exists():
            raise SweepError(
                f"job {job.handle} could not write into {self._folder} on its node\n"
                "hint: the data root must be a folder that all nodes share"
            )
        state = "is gone" if found.state == GONE else f"ended as {found.state}"
        text = tail(log, TAIL_BYTES).decode(errors="replace").strip() if status is None else ""
        said = text.rpartition("\n")[2].strip()
        self._tell(job, status, f"job {job.handle} {state}" + (f": {said}" if said else ""))

    def _tell(self, job: _Job, status: int | None, reason: str) -> None:
        self._ended.append(Ended(job.work.number, status, "" if status is not None else reason))
        del self._jobs[job.work.number]
        if job.handle and status is not None:
            for name in ("submitted.pkl", "0_result.pkl", "0_log.out", "0_log.err"):
                self._path(job.handle, name).unlink(missing_ok=True)

    def _path(self, handle: str, name: str) -> Path:
        """A file of submitit's."""
        return self._folder / f"{handle}_{name}"


def parameters_of(resources: Resources, options: Mapping[str, Any]) -> dict[str, Any]:
    """What submitit is to ask of sbatch.

    Args:
        resources: of one run.
        options: of sbatch, as a sweep's file gives them.

    Raises:
        SweepError: an option cannot be used here.
    """
    given = {str(key).lstrip("-").replace("-", "_"): value for key, value in options.items()}
    for key in sorted(given.keys() & OWN.keys()):
        raise SweepError(f"slurm.{key} cannot be set: {OWN[key]}")
    cpus = _whole("cpus_per_task", given.pop("cpus_per_task", math.ceil(resources.cpus)))
    found: dict[str, Any] = {
        "time": None,
        "wckey": None,  # else it is submitit's
        "cpus_per_task": cpus,
        "srun_args": [f"--cpus-per-task={cpus}"],  # since Slurm 22.05 a step does not have them of its job
        "setup": ["trap : TERM"],  # else the script of the job ends before the run has saved
    }
    extra: dict[str, Any] = {"requeue": True}
    if given.pop("requeue", True) is False:
        extra = {"no-requeue": True}
    if resources.memory and not given.keys() & {"mem", "mem_per_cpu", "mem_per_gpu"}:
        extra["mem"] = f"{math.ceil(resources.memory / (1 << 20))}M"
    if resources.gpus and not given.keys() & {"gres", "gpus", "gpus_per_node", "gpus_per_task"}:
        if resources.gpus % 1:
            raise SweepError(f"a run takes {resources.gpus:g} GPUs, and Slurm gives whole ones")
        extra["gpus-per-node"] = int(resources.gpus)
    extra |= {
        key.replace("_", "-"): value
        for key, value in given.items()
        if value is not None and value is not False
    }
    return {**found, "additional_parameters": extra}


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SweepError(f"slurm.{name} must be a whole number from 1, not {value!r}")
    return value


def _check() -> None:
    """Be sure that there are Slurm and submitit; SweepError: one is not here."""
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise SweepError(
                f"there is no {program} here\nhint: start the sweep where jobs of Slurm are submitted"
            )
    if find_spec("submitit") is None:
        raise SweepError("Slurm needs submitit\nhint: pip install 'rla-agent[slurm]'")


def _configuration() -> dict[str, str]:
    """What slurmctld is configured to; SweepError: it does not answer."""
    done = _ask("scontrol", "show", "config")
    if done.returncode:
        raise SweepError(f"Slurm does not answer: {_refusal(done.stderr)}")
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _squeue(*which: str) -> dict[str, _Seen] | None:
    """The jobs that slurmctld knows of these, by number; None where it does not answer."""
    done = _ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r|%j", *which)
    if done.returncode:
        return {} if UNKNOWN in done.stderr else None
    words = (line.strip().split("|", 3) for line in done.stdout.splitlines())
    return {word[0]: _Seen(*word[1:]) for word in words if len(word) == 4}  # noqa: PLR2004 - as asked


def _ask(*words: str) -> subprocess.CompletedProcess[str]:
    """What a program of Slurm says; one that does not end in time has failed."""
    try:
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_TIMEOUT_S,
            check=False,
            start_new_session=True,  # Ctrl-C is for the driver
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"{words[0]} did not end in {ASK_TIMEOUT_S:.0f} s")


@contextmanager
def _outside_of_jobs() -> Iterator[None]:
    """Without what tells a process which part of a job it is: jobs inherit their submitter's variables."""
    from rla_client.run.environment import RANK_VARIABLES  # noqa: PLC0415 - not on the node

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
    """What sbatch has against it, and what to do."""
    lines = [line.strip().removeprefix("sbatch: ").removeprefix("error: ") for line in text.splitlines()]
    told = "; ".join(dict.fromkeys(line for line in lines if line and not line.startswith("Try ")))
    if "option" in told:
        told += "\nhint: what slurm: holds are options of sbatch, without the dashes"
    elif "MaxSubmit" in told or "job array" in told.lower():
        told += "\nhint: slurm: {in_queue: 100} has fewer jobs in the queue at a time"
    return f"Slurm refuses the jobs: {told}"


# -- a job -----------------------------------------------------------------------------------------


def _job_file(work: Work) -> Path:
    """The file that is flocked by the job of a run, and names it."""
    return Path(work.lock).with_suffix(".job")


@dataclass(frozen=True, slots=True)
class Attempt:
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
        lock = os.open(_job_file(self.work), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
