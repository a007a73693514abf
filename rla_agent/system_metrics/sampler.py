"""Sampler of the resources of runs' processes.

Every `sample_interval_s` one thread reads the process tree of each live run of this machine and appends a
line to `log/…/system.csv`; of the processes of a part of a run, to `system.<machine>.csv`. A run whose file
system does not answer is left out.

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
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from rla_agent.outputs.file_system_lanes import Disk, Lanes, disk_of
from rla_agent.system_metrics.gpus import open_nvml, read_gpus
from rla_agent.system_metrics.process_tree import children_of, measure, read_processes
from rla_agent.system_metrics.sample_files import SampledRun, write_sample
from rla_client.contract.spool.opening import Opening

LOOK_S = 1.0  # for runs that are due, or new
LEAST_S = 0.02  # least interval between samples, so that no run can demand all of a core
WRITE_S = 0.5  # for all samples of a turn; slower ones continue beside the next ones
HUNG_S = 5.0  # beyond, a file system that does not answer is worth a line under "needs attention"
MAX_NAMED = 3  # roots of one file system
_log = logging.getLogger("rla_agent.system_metrics.sampler")


class ResourceSampler(threading.Thread):
    """Samples the live runs that `live` names.

    Args:
        live: returns (stream name, opening) of each stream with a live writer.
        interval_s: between samples of a run whose project does not set it; 0: none.
    """

    def __init__(self, live: Callable[[], Iterable[tuple[str, Opening]]], interval_s: float) -> None:
        super().__init__(name="sampler", daemon=True)
        self._live = live
        self._interval_s = interval_s
        self._end = threading.Event()
        self._tracked: dict[str, SampledRun] = {}
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
        host = os.uname().nodename  # a part's pids count as of this machine
        live: dict[str, list[Opening]] = {}  # of a part of a run, all processes are one
        wanted: set[str] = set()
        for name, opening in self._live():
            if opening.host == host and (opening.primary or opening.ends_part):
                key = f"{opening.run} {opening.part}" if opening.part else name
                live.setdefault(key, []).append(opening)
                wanted.update([key] if due is None or name in due else ())
        for name in [name for name in self._tracked if name not in live]:
            del self._tracked[name]
        live = {name: openings for name, openings in live.items() if name in wanted}
        if not live:
            return
        import psutil  # noqa: PLC0415 - only once there is a run

        processes = read_processes()
        children = children_of(processes)
        network = None
        with suppress(OSError):  # a hardened service has no access
            network = psutil.net_io_counters()
        gpu = read_gpus(open_nvml())
        found: dict[Disk, list[tuple[SampledRun, dict[str, Any]]]] = {}
        for name, openings in live.items():
            tracked = self._tracked.get(name)
            pids = tuple(opening.pid for opening in openings)
            if tracked is None:
                disk = disk_of(openings[0].root, openings[0].root_device)
                tracked = self._tracked[name] = SampledRun(openings[0], pids, name, disk)
            tracked.pids = pids
            if self._lanes.hung_s(tracked.disk) is not None:
                continue
            values = measure(tracked, processes, children)
            if values is None:
                continue
            values["net_sent_bytes"] = network.bytes_sent if network else None
            values["net_received_bytes"] = network.bytes_recv if network else None
            values.update(gpu.of(tracked.cpu_s))
            found.setdefault(tracked.disk, []).append((tracked, values))
        self._lanes.run({disk: partial(self._write, samples) for disk, samples in found.items()}, WRITE_S)

    def _write(self, samples: Iterable[tuple[SampledRun, dict[str, Any]]]) -> None:
        try:
            for tracked, values in samples:
                values["disk_used_percent"] = _disk_used(tracked.opening.root)
                with suppress(OSError):
                    write_sample(tracked, values)
        except Exception:  # noqa: BLE001 - top of a thread: no sample is worth the agent
            _log.exception("sampling failed and ends; rows and everything else continue")
            self.stop()

    def problems(self) -> list[dict[str, str]]:
        """File systems that block samples: `what` and `fix`, for `status`."""
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


def _disk_used(root: str) -> float | None:
    try:
        disk = os.statvfs(root)
    except OSError:
        return None
    return 100.0 * (1.0 - disk.f_bavail / disk.f_blocks) if disk.f_blocks else None
