"""Runs on this machine: as many at a time as its cores, memory and GPUs hold.

A GPU is a lock file, below the folder of this user's state, that the processes of its run hold: two sweeps,
or a sweep and the runs that a killed driver left, never put two runs on one GPU. Runs that asked for a half
take a shared lock of the GPU and an exclusive one of one of its halves.
"""

from __future__ import annotations

import itertools
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rla_client.contract.files import PRIVATE_FOLDER
from rla_client.contract.locks import try_lock, wait_for_lock
from rla_client.contract.paths import find_places
from rla_client.sweep.engines.base import BY_SIGNAL, NOT_STARTED, Ended, Work, group_of, start_program
from rla_client.sweep.journal import SweepError
from rla_client.sweep.spec import Resources

GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
LIST_TIMEOUT_S = 30
POLL_S = 0.1  # of a run that an earlier driver started; it is not this process's child
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


class LocalEngine:
    """See the module.

    Attributes:
        parallel: runs at a time at most.
    """

    name = "local"

    def __init__(self, resources: Resources) -> None:
        self._gpus = _Gpus(resources.gpus) if resources.gpus else None
        self.parallel = _room(resources, self._gpus)
        self._taken: list[tuple[list[int], str]] = []  # GPUs that are locked and not given to a run yet
        self._groups: dict[int, int | str] = {}  # by run: its process group, or the lock that tells it
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()

    def room(self) -> int:
        """As `Engine.room`; GPUs are taken by it, so that they are there when runs come."""
        free = max(self.parallel - len(self._groups), 0)
        if self._gpus is None:
            return free
        while len(self._taken) < free and (taken := self._gpus.take()) is not None:
            self._taken.append(taken)
        while len(self._taken) > free:
            _release(self._taken.pop()[0])
        return len(self._taken)

    def start(self, works: Sequence[Work]) -> list[str]:
        """As `Engine.start`."""
        for work in works:
            environment = {**os.environ, **work.environment}
            held: list[int] = []
            if self._gpus is not None:
                held, environment[GPU_VARIABLE] = self._taken.pop(0)
            try:
                process = start_program(work, environment, held)
            except (OSError, ValueError) as error:  # ValueError: a word that no program can be given
                self._groups[work.number] = 0
                self._ended.put(Ended(work.number, NOT_STARTED, f"cannot be started: {error}"))
            else:
                self._groups[work.number] = process.pid
                self._watch(_end_of, work, process)
            finally:
                _release(held)
        self._give_back()
        return [""] * len(works)

    def adopt(self, work: Work, handle: str) -> bool:  # noqa: ARG002 - the lock tells
        """As `Engine.adopt`."""
        if group_of(work.lock) is None:
            return False
        self._groups[work.number] = work.lock
        self._watch(_end_of_adopted, work)
        return True

    def ended(self, timeout_s: float) -> list[Ended]:
        """As `Engine.ended`."""
        found: list[Ended] = []
        with suppress(queue.Empty):
            found.append(self._ended.get(timeout=timeout_s))
            while True:
                found.append(self._ended.get_nowait())
        for one in found:
            self._groups.pop(one.number, None)
        return found

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """As `Engine.stop`."""
        for number in numbers:
            group = self._groups.get(number)
            if isinstance(group, str):
                group = group_of(group)
            if group:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL if kill else signal.SIGTERM)

    def close(self) -> None:
        """As `Engine.close`: the runs are sessions of their own and go on."""
        self._give_back()

    def _give_back(self) -> None:
        """GPUs that were taken and no run was for are others' again."""
        while self._taken:
            _release(self._taken.pop()[0])

    def _watch(self, wait: Callable[..., Ended], *arguments: object) -> None:
        threading.Thread(target=lambda: self._ended.put(wait(*arguments)), daemon=True).start()


def _release(held: Sequence[int]) -> None:
    for descriptor in held:
        os.close(descriptor)


def _end_of(work: Work, process: subprocess.Popen[bytes]) -> Ended:
    seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if seen is not None and seen.si_code == os.CLD_EXITED:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)  # what it left in the background, maybe with its GPU
        return Ended(work.number, process.wait())
    status = process.wait()
    _wait_for_all(work)  # only the shell may have been killed, not the program
    return Ended(work.number, BY_SIGNAL - status)


def _end_of_adopted(work: Work) -> Ended:
    """Until there is an exit status, or nobody who could write one."""
    while not _has_content(work.exit) and group_of(work.lock) is not None:
        time.sleep(POLL_S)
    return Ended(work.number, None)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _wait_for_all(work: Work) -> None:
    with suppress(OSError):
        descriptor = os.open(work.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            wait_for_lock(descriptor)
        finally:
            os.close(descriptor)


def _room(resources: Resources, gpus: _Gpus | None) -> int:
    """How many runs fit.

    Raises:
        SweepError: not one.
    """
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
    except (OSError, ValueError):  # there is none, or it says `max`
        return 1 << 62


class _Gpus:
    """The GPUs of this machine and their locks.

    Attributes:
        room: runs that they hold.
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
        """Locks for one run, and what CUDA_VISIBLE_DEVICES is to say; None where none is free."""
        held: list[int] = []
        names: list[str] = []
        for share, name in itertools.product(range(self._shares), self._names):  # an unused one first
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
    told = os.environ.get(GPU_VARIABLE)
    if told is not None:
        names = dict.fromkeys(map(str.strip, told.split(",")))
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
    count = sum(line.startswith("GPU ") for line in found.stdout.splitlines())  # others are parts of them
    return [str(number) for number in range(count)]
