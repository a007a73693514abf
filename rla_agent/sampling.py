"""What a run's processes use, sampled by the agent at no cost to training.

Every `sample_interval_s` one thread looks at the process tree of each live run of this machine and
appends a line to `log/…/system.csv` and events to `log/…/tb/system/`: CPU, memory, disk and network
by wall time, GPU use and memory when nvidia-ml-py is installed and a GPU is there. These files are
the agent's own: no frames stand behind them, a restart goes on at their last whole record, and a
sample that could not be written is dropped.

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
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rla_agent.ingest import Record, Row
from rla_agent.opening import StreamOpening, open_folder
from rla_agent.sinks.tensorboard import EventEncoder, whole_records

CSV_NAME = "system.csv"
EVENTS_FOLDER = "tb/system"
COLUMNS = (
    "timestamp",
    "seconds",
    "cpu_percent",
    "rss_bytes",
    "processes",
    "threads",
    "read_bytes",
    "written_bytes",
    "disk_used_percent",
    "net_sent_bytes",
    "net_received_bytes",
    "gpu_percent",
    "gpu_memory_bytes",
)
MAX_TREE = 2000  # processes of one run that are looked at

_log = logging.getLogger("rla_agent.sampling")
_APPEND = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Tracked:
    """A run that is sampled, and the CPU seconds of its tree at the last sample."""

    opening: StreamOpening
    name: str
    encoder: EventEncoder
    cpu_s: dict[int, float] = field(default_factory=dict)
    at: float = 0.0


class Sampler(threading.Thread):
    """Samples the live runs that `live` names.

    Args:
        live: gives (stream name, opening) of each stream whose writer lives.
        interval_s: between samples.
    """

    def __init__(self, live: Callable[[], Iterable[tuple[str, StreamOpening]]], interval_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self._live = live
        self._interval_s = interval_s
        self._end = threading.Event()
        self._tracked: dict[str, _Tracked] = {}
        self._gpu = Gpu()

    def run(self) -> None:
        """Sample until stopped."""
        while not self._end.wait(self._interval_s):
            try:
                self.sample()
            except Exception:  # noqa: BLE001 - top of a thread: no sample is worth the agent
                _log.exception("sampling failed and ends; rows and everything else go on")
                return

    def stop(self) -> None:
        """End after the sample under way."""
        self._end.set()

    def sample(self) -> None:
        """Take one sample of every live run."""
        live = {name: opening for name, opening in self._live() if opening.primary and is_local(opening)}
        for name in [name for name in self._tracked if name not in live]:
            del self._tracked[name]
        if not live:
            return
        import psutil  # noqa: PLC0415 - only once there is a run

        children = _children(psutil)
        network = None
        with suppress(OSError):  # a hardened service may not look
            network = psutil.net_io_counters()
        gpu = self._gpu.read()
        for name, opening in live.items():
            tracked = self._tracked.get(name)
            if tracked is None:
                tracked = self._tracked[name] = _Tracked(opening, name, EventEncoder(opening.opened))
            values = _measure(psutil, tracked, children)
            if values is None:
                continue
            values["net_sent_bytes"] = network.bytes_sent if network else None
            values["net_received_bytes"] = network.bytes_recv if network else None
            values.update(gpu.of(tracked.cpu_s))
            with suppress(OSError):
                write_sample(tracked, values)


def is_local(opening: StreamOpening) -> bool:
    """Whether the writer's pid is one of this machine, as far as its host name tells."""
    return opening.host == os.uname().nodename


def _children(psutil: Any) -> dict[int, list[int]]:  # noqa: ANN401 - a module
    children: dict[int, list[int]] = {}
    for entry in psutil.process_iter(["ppid"]):
        children.setdefault(entry.info["ppid"], []).append(entry.pid)
    return children


def _tree(root: int, children: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    waiting = [root]
    while waiting and len(found) < MAX_TREE:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, ())
    return found


def _measure(psutil: Any, tracked: _Tracked, children: dict[int, list[int]]) -> dict[str, Any] | None:  # noqa: ANN401
    """Values of one process tree; None when its root is gone."""
    now = time.time()
    cpu: dict[int, float] = {}
    total = {"rss_bytes": 0, "threads": 0, "read_bytes": 0, "written_bytes": 0}
    for pid in _tree(tracked.opening.pid, children):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                total["rss_bytes"] += process.memory_info().rss
                total["threads"] += process.num_threads()
                disk = process.io_counters()
            cpu[pid] = times.user + times.system
            total["read_bytes"] += disk.read_bytes
            total["written_bytes"] += disk.write_bytes
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
        "disk_used_percent": _disk_used(tracked.opening.root),
        **total,
    }


def _disk_used(root: str) -> float | None:
    try:
        disk = os.statvfs(root)
    except OSError:
        return None
    return 100.0 * (1.0 - disk.f_bavail / disk.f_blocks) if disk.f_blocks else None


def write_sample(tracked: _Tracked, values: dict[str, Any]) -> None:
    """Append one sample to the run's files.

    Raises:
        OSError: the item is gone, or cannot be written.
    """
    opening = tracked.opening
    line = ",".join("" if values.get(c) is None else repr(values[c]) for c in COLUMNS) + "\n"
    head = ",".join(COLUMNS) + "\n"
    folder = open_folder(opening.root, opening.folders["log"])
    try:
        _append(folder, CSV_NAME, head.encode(), line.encode(), _whole_lines)
        if "tensorboard" in opening.sinks:
            below = open_folder(opening.root, f"{opening.folders['log']}/{EVENTS_FOLDER}", create=True)
            try:
                numbers = {f"system/{c}": values[c] for c in COLUMNS[2:] if values.get(c) is not None}
                row = Row(int(values["seconds"]), values["timestamp"], numbers, None)
                data, _ = tracked.encoder.encode([Record(0, row)])
                name = f"events.out.tfevents.{int(opening.opened)}.{opening.pid}.{tracked.name[-8:]}.system"
                _append(below, name, tracked.encoder.head(), data, whole_records)
            finally:
                os.close(below)
    finally:
        os.close(folder)


def _append(folder: int, name: str, head: bytes, data: bytes, whole: Callable[[bytes], int]) -> None:
    """Append after the last whole record; a torn one is overwritten."""
    descriptor = os.open(name, _APPEND, 0o644, dir_fd=folder)
    try:
        size = os.fstat(descriptor).st_size
        if size == 0:
            data = head + data
        else:
            tail = os.pread(descriptor, 1, size - 1)
            if whole is _whole_lines and tail != b"\n":
                size = whole(os.pread(descriptor, size, 0))
                os.ftruncate(descriptor, size)
        if os.pwrite(descriptor, data, size) != len(data):
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def _whole_lines(content: bytes) -> int:
    return content.rfind(b"\n") + 1


class Gpu:
    """GPU readings through nvidia-ml-py; empty ones without it or without a GPU."""

    def __init__(self) -> None:
        self._library: Any = None
        self._looked = False

    def read(self) -> GpuReading:
        """Use and memory now."""
        library = self._open()
        if library is None:
            return GpuReading()
        percent: list[float] = []
        memory: dict[int, int] = {}
        with suppress(library.NVMLError):
            for index in range(library.nvmlDeviceGetCount()):
                device = library.nvmlDeviceGetHandleByIndex(index)
                percent.append(float(library.nvmlDeviceGetUtilizationRates(device).gpu))
                for process in library.nvmlDeviceGetComputeRunningProcesses(device):
                    memory[process.pid] = memory.get(process.pid, 0) + (process.usedGpuMemory or 0)
        return GpuReading(percent, memory)

    def _open(self) -> Any:  # noqa: ANN401 - an optional module
        if not self._looked:
            self._looked = True
            if os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl"):
                with suppress(ImportError):
                    import pynvml  # noqa: PLC0415 - only where there is a GPU

                    with suppress(pynvml.NVMLError):
                        pynvml.nvmlInit()
                        self._library = pynvml
        return self._library


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Use of each GPU in percent, and memory by pid."""

    percent: list[float] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)

    def of(self, pids: Iterable[int]) -> dict[str, Any]:
        """Values for a process tree: mean use of the GPUs, memory of its processes."""
        if not self.percent:
            return {}
        return {
            "gpu_percent": sum(self.percent) / len(self.percent),
            "gpu_memory_bytes": sum(self.memory.get(pid, 0) for pid in pids),
        }
