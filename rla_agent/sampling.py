"""What a run's processes use, sampled by the agent at no cost to training.

Every `sample_interval_s` one thread looks at the process tree of each live run of this machine and
appends a line to `log/…/system.csv` and events to `log/…/tb/system/`: CPU, memory, disk and network
by wall time, GPU use and memory when nvidia-ml-py is installed and a GPU is there. These files are
the agent's own: no frames stand behind them, a restart continues at their last whole record, and a
sample that could not be written is dropped, as are those of runs whose file system does not answer.

    columns   timestamp, seconds (since the run was opened), cpu_percent (100 = one core), rss_bytes,
              processes, threads, read_bytes, written_bytes (of the tree so far),
              disk_used_percent (of the data root), net_sent_bytes, net_received_bytes (machine, so
              far), gpu_percent, gpu_memory_bytes (of the tree's processes)
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from types import ModuleType
from typing import Any

from rla_agent.model.ingest import Record, Row
from rla_agent.outputs.data_roots import Disk, Lanes, disk_of
from rla_agent.outputs.tensorboard import EventEncoder
from rla_client.contract.event_records import whole_records
from rla_client.contract.filesystem.modes import open_within
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.spool.opening import Opening

CSV_NAME = "system.csv"
EVENTS_FOLDER = "tb/system"
COLUMNS = (
    "timestamp", "seconds", "cpu_percent", "rss_bytes", "processes", "threads", "read_bytes", "written_bytes",
    "disk_used_percent", "net_sent_bytes", "net_received_bytes", "gpu_percent", "gpu_memory_bytes",
)  # fmt: skip
_DRIVER_PATHS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")  # the last one is WSL's
LOOK_S = 1.0  # for runs that are due, or new
LEAST_S = 0.02  # between samples: a run may not ask for all of a core
WRITE_S = 0.5  # for all samples of a turn; what takes longer continues beside the next ones
HUNG_S = 5.0  # beyond, a file system that does not answer is worth a line under "needs attention"
MAX_NAMED = 3  # roots of one file system
MAX_TREE = 2000  # processes of one run that are looked at

_log = logging.getLogger("rla_agent.sampling")
_APPEND = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Tracked:
    """A run that is sampled, and the CPU seconds of its tree at the last sample."""

    opening: Opening
    name: str
    encoder: EventEncoder
    disk: Disk
    cpu_s: dict[int, float] = field(default_factory=dict)
    at: float = 0.0
    events_whole: bool = False  # the events were looked at since this agent began


class Sampler(threading.Thread):
    """Samples the live runs that `live` names.

    Args:
        live: gives (stream name, opening) of each stream whose writer lives.
        interval_s: between samples of a run whose project does not say it; 0: none.
    """

    def __init__(self, live: Callable[[], Iterable[tuple[str, Opening]]], interval_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self._live = live
        self._interval_s = interval_s
        self._end = threading.Event()
        self._tracked: dict[str, _Tracked] = {}
        self._due: dict[str, float] = {}  # monotonic
        self._lanes = Lanes("sampler-write")

    def run(self) -> None:
        """Sample until stopped."""
        while not self._end.wait(self._pause_s()):
            try:
                self.sample(self._due_runs(time.monotonic()))
            except Exception:  # noqa: BLE001 - top of a thread: no sample is worth the agent
                _log.exception("sampling failed and ends; rows and everything else continue")
                return

    def _interval(self, opening: Opening) -> float:
        own_s = opening.sample_interval_s
        return self._interval_s if own_s is None else own_s

    def _pause_s(self) -> float:
        intervals = (self._interval(opening) for _, opening in self._live())
        return max(LEAST_S, min((each for each in intervals if 0 < each < LOOK_S), default=LOOK_S))

    def _due_runs(self, now: float) -> set[str]:
        """Streams whose sample is due; the first one is an interval after a stream is first seen."""
        intervals = {name: each for name, opening in self._live() if (each := self._interval(opening)) > 0}
        self._due = {name: self._due.get(name, now + each) for name, each in intervals.items()}
        due = {name for name, moment in self._due.items() if moment <= now}
        self._due.update({name: now + intervals[name] for name in due})
        return due

    def stop(self) -> None:
        """End after the sample under way."""
        self._end.set()

    def sample(self, due: Container[str] | None = None) -> None:
        """Take one sample of every live run, or of those that are due."""
        host = os.uname().nodename  # as far as it tells, the pids of its writers are of this machine
        live = {name: opening for name, opening in self._live() if opening.primary and opening.host == host}
        for name in [name for name in self._tracked if name not in live]:
            del self._tracked[name]
        live = {name: opening for name, opening in live.items() if due is None or name in due}
        if not live:
            return
        import psutil  # noqa: PLC0415 - only once there is a run

        processes = read_processes()
        children = _children(processes)
        network = None
        with suppress(OSError):  # a hardened service may not look
            network = psutil.net_io_counters()
        gpu = read_gpus(open_nvml())
        found: dict[Disk, list[tuple[_Tracked, dict[str, Any]]]] = {}
        for name, opening in live.items():
            tracked = self._tracked.get(name)
            if tracked is None:
                disk = disk_of(opening.root, opening.root_device)
                tracked = self._tracked[name] = _Tracked(opening, name, EventEncoder(opening.opened), disk)
            if self._lanes.hung_s(tracked.disk) is not None:
                continue
            values = _measure(tracked, processes, children)
            if values is None:
                continue
            values["net_sent_bytes"] = network.bytes_sent if network else None
            values["net_received_bytes"] = network.bytes_recv if network else None
            values.update(gpu.of(tracked.cpu_s))
            found.setdefault(tracked.disk, []).append((tracked, values))
        self._lanes.run({disk: partial(self._write, samples) for disk, samples in found.items()}, WRITE_S)

    def _write(self, samples: Iterable[tuple[_Tracked, dict[str, Any]]]) -> None:
        try:
            for tracked, values in samples:
                values["disk_used_percent"] = _disk_used(tracked.opening.root)
                with suppress(OSError):
                    write_sample(tracked, values)
        except Exception:  # noqa: BLE001 - top of a thread: no sample is worth the agent
            _log.exception("sampling failed and ends; rows and everything else continue")
            self.stop()

    def problems(self) -> list[dict[str, str]]:
        """File systems that hold up samples: `what` and `fix`, for `status`."""
        roots: dict[Disk, set[str]] = {}
        for tracked in list(self._tracked.values()):
            roots.setdefault(tracked.disk, set()).add(tracked.opening.root)
        return [
            {
                "what": f"no samples of the runs in {', '.join(sorted(roots[disk])[:MAX_NAMED])}: "
                f"the file system has not answered for {since:.0f} s",
                "fix": "check that disk or its server; rows wait in the spool",
            }
            for disk in roots
            if (since := self._lanes.hung_s(disk)) is not None and since > HUNG_S
        ]


@dataclass(frozen=True, slots=True)
class _Process:
    """What /proc/<pid>/stat tells of one process."""

    parent: int
    cpu_s: float
    rss_bytes: int
    threads: int


def read_processes() -> dict[int, _Process]:
    """All processes of the machine that can be seen, by pid; one small file each."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[int, _Process] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                cpu_s = (int(fields[11]) + int(fields[12])) / tick
                found[int(name)] = _Process(int(fields[1]), cpu_s, int(fields[21]) * page, int(fields[17]))
    return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _children(processes: dict[int, _Process]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    return children


def _tree(root: int, children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    waiting = [root]
    while waiting and len(found) < MAX_TREE:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Bytes that a process read from and wrote to disks; nothing where they may not be seen."""
    try:
        lines = _read(f"/proc/{pid}/io").splitlines()
        return int(lines[4].split()[1]), int(lines[5].split()[1])
    except (OSError, IndexError, ValueError):
        return 0, 0


def _measure(
    tracked: _Tracked, processes: dict[int, _Process], children: dict[int, list[int]]
) -> dict[str, Any] | None:
    """Values of one process tree; None when its root is gone."""
    now = time.time()
    cpu: dict[int, float] = {}
    total = {"rss_bytes": 0, "threads": 0, "read_bytes": 0, "written_bytes": 0}
    for pid in _tree(tracked.opening.pid, children):
        process = processes.get(pid)
        if process is None:
            continue
        read, written = _disk_bytes(pid)
        cpu[pid] = process.cpu_s
        total["rss_bytes"] += process.rss_bytes
        total["threads"] += process.threads
        total["read_bytes"] += read
        total["written_bytes"] += written
    if not cpu:
        return None
    span = now - tracked.at
    used = sum(max(0.0, seconds - tracked.cpu_s.get(pid, seconds)) for pid, seconds in cpu.items())
    percent = 100.0 * used / span if tracked.at and span > 0 else None
    tracked.cpu_s, tracked.at = cpu, now
    return {
        "timestamp": now,
        "seconds": now - tracked.opening.opened,
        "cpu_percent": percent,
        "processes": len(cpu),
        **total,
    }


def _disk_used(root: str) -> float | None:
    try:
        disk = os.statvfs(root)
    except OSError:
        return None
    return 100.0 * (1.0 - disk.f_bavail / disk.f_blocks) if disk.f_blocks else None


def write_sample(tracked: _Tracked, values: dict[str, Any]) -> None:
    """Append one sample to the run's files; an OSError where the item is gone, or cannot be written."""
    opening = tracked.opening
    line = ",".join("" if values.get(c) is None else repr(values[c]) for c in COLUMNS) + "\n"
    head = ",".join(COLUMNS) + "\n"
    with ExitStack() as held:
        folder = open_folder(opening.root, opening.folders["log"])
        held.callback(os.close, folder)
        _append(folder, CSV_NAME, head.encode(), line.encode())
        if "tensorboard" not in opening.sinks:
            return
        below = open_folder(opening.root, f"{opening.folders['log']}/{EVENTS_FOLDER}", create=True)
        held.callback(os.close, below)
        numbers = {f"system/{c}": values[c] for c in COLUMNS[2:] if values.get(c) is not None}
        row = Row(int(values["seconds"]), values["timestamp"], numbers, None)
        data, _ = tracked.encoder.encode([Record(0, row)])
        name = f"events.out.tfevents.{int(opening.opened)}.{opening.pid}.{tracked.name[-8:]}.system"
        torn = None if tracked.events_whole else whole_records
        _append(below, name, tracked.encoder.head(), data, torn)
        tracked.events_whole = True


def _whole_lines(content: bytes) -> int:
    return content.rfind(b"\n") + 1


def _append(
    folder: int, name: str, head: bytes, data: bytes, whole: Callable[[bytes], int] | None = _whole_lines
) -> None:
    """Append whole records after the last whole one; a torn one is overwritten. `head` begins an empty file.

    `whole` gives the bytes of whole records in a content; None: nothing is torn. Lines show it by their last
    byte, so the file is read for them only then.
    """
    descriptor = open_within(name, _APPEND, folder)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            data = head + data
        else:
            lines_whole = whole is _whole_lines and os.pread(descriptor, 1, size - 1) == b"\n"
            if whole is not None and not lines_whole:
                size = whole(os.pread(descriptor, size, 0))
                os.ftruncate(descriptor, size)
                data = data if size else head + data
        if os.pwrite(descriptor, data, size) != len(data):
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


@cache
def open_nvml() -> ModuleType | None:
    """nvidia-ml-py, ready for use; None without a GPU, or where it is not installed or finds no driver."""
    if not any(os.path.exists(path) for path in _DRIVER_PATHS):
        return None
    try:
        import pynvml  # noqa: PLC0415 - only where there is a GPU
    except ImportError:
        _log.info("there is a GPU, but no nvidia-ml-py: system.csv has no GPU columns' values")
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.info("no GPU readings: %s", error)
        return None
    ready: ModuleType = pynvml
    return ready


def read_gpus(nvml: ModuleType | None) -> GpuReading:
    """Use and memory of each GPU; what one does not tell (MIG, an old one) is left out."""
    if nvml is None:
        return GpuReading()
    gpus: list[tuple[float | None, dict[int, int]]] = []
    with suppress(nvml.NVMLError):
        for index in range(nvml.nvmlDeviceGetCount()):
            percent: float | None = None
            memory: dict[int, int] = {}
            with suppress(nvml.NVMLError):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                with suppress(nvml.NVMLError):
                    percent = float(nvml.nvmlDeviceGetUtilizationRates(device).gpu)
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
                    memory[process.pid] = memory.get(process.pid, 0) + (process.usedGpuMemory or 0)
            gpus.append((percent, memory))
    return GpuReading(tuple(gpus))


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Of each GPU: use in percent, None where it does not tell, and bytes of memory by pid."""

    gpus: tuple[tuple[float | None, Mapping[int, int]], ...] = ()

    def of(self, pids: Iterable[int]) -> dict[str, Any]:
        """Values for a process tree: mean use of the GPUs it is on, and memory of its processes.

        Where it is seen on none (it does not compute, or a container hides its pids) the mean is
        that of all GPUs.
        """
        tree = set(pids)
        mine = [gpu for gpu in self.gpus if not tree.isdisjoint(gpu[1])]
        told = [percent for percent, _ in mine or self.gpus if percent is not None]
        used = sum(held for _, memory in mine for pid, held in memory.items() if pid in tree)
        values: dict[str, Any] = {"gpu_memory_bytes": used} if self.gpus else {}
        return values | ({"gpu_percent": sum(told) / len(told)} if told else {})
