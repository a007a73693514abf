"""Resources of a process tree, read from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rla_agent.system_metrics.sample_files import SampledRun

MAX_TREE = 2000  # processes of one run that are looked at


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """Fields of /proc/<pid>/stat."""

    parent: int
    cpu_s: float
    rss_bytes: int
    threads: int


def read_processes() -> dict[int, ProcessStat]:
    """All processes of the machine that can be seen, by pid; one small file each."""
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[int, ProcessStat] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                cpu_s = (int(fields[11]) + int(fields[12])) / tick
                found[int(name)] = ProcessStat(int(fields[1]), cpu_s, int(fields[21]) * page, int(fields[17]))
    return found


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def children_of(processes: dict[int, ProcessStat]) -> dict[int, list[int]]:
    """Pids by parent."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    return children


def _pids_of_trees(roots: Iterable[int], children: dict[int, list[int]]) -> list[int]:
    """Each process once, also where one of the roots is below another."""
    found: dict[int, None] = {}
    waiting = list(roots)
    while waiting and len(found) < MAX_TREE:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = None
            waiting += children.get(pid, ())
    return list(found)


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Bytes that a process read from and wrote to disks; nothing where they may not be seen."""
    try:
        lines = _read(f"/proc/{pid}/io").splitlines()
        return int(lines[4].split()[1]), int(lines[5].split()[1])
    except (OSError, IndexError, ValueError):
        return 0, 0


def measure(
    tracked: SampledRun, processes: dict[int, ProcessStat], children: dict[int, list[int]]
) -> dict[str, Any] | None:
    """Values of a run's process trees; None when their roots are gone."""
    now = time.time()
    cpu: dict[int, float] = {}
    total = {"rss_bytes": 0, "threads": 0, "read_bytes": 0, "written_bytes": 0}
    for pid in _pids_of_trees(tracked.pids, children):
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
