"""Writer of a run's system metrics (`system.csv`).

That of a part of a run is named system.<machine>.csv. It is the agent's own file without frames in the spool:
a restart continues at its last complete line, and a sample that could not be written is dropped.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rla_agent.outputs.file_system_lanes import Disk
from rla_client.contract.filesystem.modes import open_within
from rla_client.contract.filesystem.safe_paths import open_folder
from rla_client.contract.run_part import system_file_name
from rla_client.contract.spool.opening import Opening

COLUMNS = (
    "timestamp", "seconds", "cpu_percent", "rss_bytes", "processes", "threads", "read_bytes", "written_bytes",
    "disk_used_percent", "net_sent_bytes", "net_received_bytes", "gpu_percent", "gpu_memory_bytes",
)  # fmt: skip
_APPEND = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class SampledRun:
    """A run that is sampled, and the CPU seconds of its tree at the last sample.

    `pids`: of the processes that lead to all others; those of a part of a run are several.
    """

    opening: Opening
    pids: tuple[int, ...]
    name: str
    disk: Disk
    cpu_s: dict[int, float] = field(default_factory=dict)
    at: float = 0.0


def write_sample(tracked: SampledRun, values: dict[str, Any]) -> None:
    """Append one sample to the run's file; an OSError where the item is gone, or cannot be written."""
    opening = tracked.opening
    line = ",".join("" if values.get(c) is None else repr(values[c]) for c in COLUMNS) + "\n"
    head = ",".join(COLUMNS) + "\n"
    with ExitStack() as held:
        folder = open_folder(opening.root, opening.folders["log"])
        held.callback(os.close, folder)
        _append(folder, system_file_name(opening.part), head.encode(), line.encode())


def _append(folder: int, name: str, head: bytes, line: bytes) -> None:
    """Append a line after the last whole one; a torn one is overwritten. `head` begins an empty file."""
    descriptor = open_within(name, _APPEND, folder)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            size = os.pread(descriptor, size, 0).rfind(b"\n") + 1
            os.ftruncate(descriptor, size)
        data = line if size else head + line
        if os.pwrite(descriptor, data, size) != len(data):
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)
