"""Engine of sweeps on this machine.

Each run is a session of its own, below a shell that writes its exit status: runs survive a killed driver,
and the next one finds them by their locks.

Each GPU has a lock file, in this user's state folder, which the processes of its run hold: two sweeps, or
a sweep and the runs of a killed driver, never put two runs on one GPU. Runs with half a GPU hold a shared
lock of the GPU and an exclusive lock of one of its halves.
"""

from __future__ import annotations

import itertools
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.agent.places import find_places
from rla_client.contract.filesystem.modes import PRIVATE_FOLDER
from rla_client.contract.process.locks import try_lock
from rla_client.contract.process.syscalls import process_descriptor
from rla_client.sweep.engines.attempt_files import BY_SIGNAL, exit_status, group_of, is_held
from rla_client.sweep.engines.attempt_process import NOT_STARTED, start_program
from rla_client.sweep.engines.base import AttemptEnded, Work
from rla_client.sweep.journal import SweepError
from rla_client.sweep.spec import Resources

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
LIST_TIMEOUT_S = 30
POLL_S = 0.1  # for runs that are no children of this process, or have no descriptor
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(slots=True)
class _Started:
    """A run started by this driver; the process is the shell around its program."""

    work: Work
    process: subprocess.Popen[bytes]
    descriptor: int  # readable once the shell has ended; -1 on an old kernel

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


class LocalEngine:
    """Engine on this machine's cores and GPUs.

    Attributes:
        parallel: largest number of runs at a time.
        handle: host name, which may change, and a unique identifier of this machine.
    """

    name = "local"

    def __init__(self, resources: Resources) -> None:
        self.handle = f"{socket.gethostname()} {_place()}"
        self._gpus = _Gpus(resources.gpus) if resources.gpus else None
        self.parallel = _room(resources, self._gpus)
        self._taken: list[tuple[list[int], str]] = []  # locked GPUs without a run
        self._started: dict[int, _Started] = {}
        self._adopted: dict[int, Work] = {}  # runs with a shell that is not our child, or was killed
        self._killed: set[int] = set()  # runs killed together with their shell
        self._failed: list[AttemptEnded] = []

    def room(self) -> int:
        """See `Engine.room`; it locks GPUs, so that they are available to `start`."""
        busy = len(self._started) + len(self._adopted) + len(self._failed)
        free = max(self.parallel - busy, 0)
        if self._gpus is None:
            return free
        while len(self._taken) < free and (taken := self._gpus.take()) is not None:
            self._taken.append(taken)
        while len(self._taken) > free:
            _release(self._taken.pop()[0])
        return len(self._taken)

    def start(self, works: Sequence[Work]) -> list[str]:
        """See `Engine.start`."""
        for work in works:
            further = dict(work.environment)
            held: list[int] = []
            if self._gpus is not None:
                held, further[GPU_VARIABLE] = self._taken.pop(0)
            try:
                process = start_program(work, {**os.environ, **further}, held)
            except (
                OSError,
                ValueError,
            ) as error:  # ValueError: an argument that cannot be passed to a program
                self._failed.append(AttemptEnded(work.number, NOT_STARTED, f"cannot be started: {error}"))
            else:
                self._started[work.number] = _Started(work, process, _descriptor_of(process.pid))
            finally:
                _release(held)
        self._give_back()
        return [""] * len(works)

    def adopt(self, work: Work, handle: str) -> bool:
        """See `Engine.adopt`; locks also show processes of other machines."""
        if not is_held(work.lock):
            return False
        there, here = handle.split(" "), self.handle.split(" ")
        if handle and there[-1] != here[-1]:
            raise SweepError(
                f"run {work.number} continues on {there[0]}; this is another machine or container, "
                f"{here[0]}\nhint: stop or continue the sweep there"
            )
        self._adopted[work.number] = work
        return True

    def ended(self, timeout_s: float) -> list[AttemptEnded]:
        """See `Engine.ended`."""
        deadline = time.monotonic() + timeout_s
        while True:
            found, self._failed = self._failed, []
            found += self._ended_adopted()
            left = 0.0 if found else max(deadline - time.monotonic(), 0.0)
            found += self._ended_started(min(left, POLL_S) if self._adopted else left)
            if found or time.monotonic() >= deadline:
                return found

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """See `Engine.stop`."""
        how = signal.SIGKILL if kill else signal.SIGTERM
        for number in numbers:
            started, adopted = self._started.get(number), self._adopted.get(number)
            group = started.process.pid if started else group_of(adopted.lock) if adopted else None
            if group is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, how)
                    self._killed |= {number} if kill else set()

    def close(self) -> None:
        """See `Engine.close`; runs continue, because they are sessions of their own."""
        self._give_back()
        for started in self._started.values():
            started.close()

    def _ended_started(self, timeout_s: float) -> list[AttemptEnded]:
        """Ends of runs with shells that are our children; waits up to `timeout_s` for the first."""
        poll = select.poll()
        for started in self._started.values():
            if started.descriptor >= 0:
                poll.register(started.descriptor, select.POLLIN)
            else:
                timeout_s = min(timeout_s, POLL_S)
        poll.poll(timeout_s * 1e3)
        found = []
        for number, started in list(self._started.items()):
            status = started.process.poll()
            if status is not None:
                self._started.pop(number).close()
                ended = self._judged(started.work, status)
                found += [] if ended is None else [ended]
        return found

    def _judged(self, work: Work, status: int) -> AttemptEnded | None:
        """End of a run after the end of its shell; None if the shell was killed and its program lives."""
        if status >= 0:
            return AttemptEnded(work.number, status)
        if exit_status(work.exit) is None and is_held(work.lock):
            self._adopted[work.number] = work
            return None
        return self._ended_without_shell(work)

    def _ended_adopted(self) -> list[AttemptEnded]:
        """Ends of adopted runs that have an exit status, or no living process."""
        over = [work for work in self._adopted.values() if _has_content(work.exit) or not is_held(work.lock)]
        for work in over:
            del self._adopted[work.number]
        return [self._ended_without_shell(work) for work in over]

    def _ended_without_shell(self, work: Work) -> AttemptEnded:
        """End of a run without a status from its shell; writes the status of a run that we killed."""
        if work.number not in self._killed or _has_content(work.exit):
            return AttemptEnded(work.number, None)
        status = BY_SIGNAL + signal.SIGKILL
        with suppress(OSError):  # a full disk: the driver gets the status all the same
            Path(work.exit).write_text(f"{status}\n", encoding="ascii")
        return AttemptEnded(work.number, status)

    def _give_back(self) -> None:
        """Release locked GPUs that no run uses."""
        while self._taken:
            _release(self._taken.pop()[0])


def _place() -> str:
    """Identifier of the space of process ids: this boot of the machine, and the container."""
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
        return f"{_BOOT.read_text().strip()}/{namespace}"
    except OSError:
        return socket.gethostname()


def _descriptor_of(pid: int) -> int:
    try:
        return process_descriptor(pid)
    except OSError:  # an old kernel, or a sandbox
        return -1


def _release(held: Sequence[int]) -> None:
    for descriptor in held:
        os.close(descriptor)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _room(resources: Resources, gpus: _Gpus | None) -> int:
    """Number of runs that fit; raises SweepError if none does."""
    import psutil  # noqa: PLC0415 - not at import of the package

    cores = len(os.sched_getaffinity(0))
    if resources.cpus > cores:
        raise SweepError(f"a run takes {resources.cpus:g} cores, and this machine has {cores}")
    room = int(cores / resources.cpus + 1e-9) if resources.parallel is None else resources.parallel
    if resources.memory:
        there = min(psutil.virtual_memory().total, *map(_limit, _CGROUP_LIMITS))
        if resources.memory > there:
            raise SweepError(
                f"a run takes {resources.memory >> 20} MiB, and this machine has {there >> 20} MiB"
            )
        room = min(room, there // resources.memory)
    return room if gpus is None else min(room, gpus.room)


def _limit(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such file, or `max`
        return 1 << 62


class _Gpus:
    """GPUs of this machine with their locks.

    Attributes:
        room: number of runs that fit.
    """

    def __init__(self, wanted: float) -> None:
        self._names = _gpu_names()
        self._each = max(int(wanted), 1)  # GPUs of one run
        self._shares = 1 if wanted >= 1 else int(1 / wanted + 1e-9)  # runs of one GPU
        self.room = len(self._names) * self._shares // self._each
        if not self.room:
            raise SweepError(
                f"a run takes {wanted:g} GPUs, and this machine has {len(self._names)}\n"
                f"hint: {GPU_VARIABLE} says which there are; else `nvidia-smi -L` is asked"
            )
        self._folder = find_places().state / "gpus"
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)

    def take(self) -> tuple[list[int], str] | None:
        """Locks for one run, and its value of CUDA_VISIBLE_DEVICES; None if no GPU is free."""
        held: list[int] = []
        names: list[str] = []
        for share, name in itertools.product(range(self._shares), self._names):  # unused GPUs first
            locks = self._lock(name, share)
            if locks:
                held += locks
                names.append(name)
            if len(names) == self._each:
                return held, ",".join(names)
        _release(held)
        return None

    def _lock(self, name: str, share: int) -> list[int]:
        whole = self._open(f"{name}.lock")
        if not try_lock(whole, shared=self._shares > 1):
            os.close(whole)
            return []
        if self._shares == 1:
            return [whole]
        part = self._open(f"{name}.{share + 1}of{self._shares}.lock")
        if try_lock(part):
            return [whole, part]
        _release([whole, part])
        return []

    def _open(self, name: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self._folder / name.replace(os.sep, "_"), flags, 0o600)


def _gpu_names() -> list[str]:
    listed = os.environ.get(GPU_VARIABLE)
    if listed is not None:
        names = dict.fromkeys(map(str.strip, listed.split(",")))
        return [name for name in names if name and name != "-1"]
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        found = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=LIST_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    count = sum(
        line.startswith("GPU ") for line in found.stdout.splitlines()
    )  # other lines are parts of GPUs
    return [str(number) for number in range(count)]
