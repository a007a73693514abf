"""OOM-kill counters of the kernel.

A control group counts its kills in `memory.events` (version 2, groups below it included) or
`memory.oom_control` (version 1). Where the group of a dead process is gone, a group above it decides, and
last the count of the whole machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")
MACHINE = "machine"  # beside the folders of groups
MAX_DEPTH = 16  # of groups
NO_LIMIT = 1 << 60  # bytes; version 1 writes a number beyond all memory
MIB, GIB = 1 << 20, 1 << 30
_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_VERSIONS = (  # the file that counts, the most that was used, the limit
    ("memory.events", "memory.peak", "memory.max"),
    ("memory.oom_control", "memory.max_usage_in_bytes", "memory.limit_in_bytes"),
)


def memory_groups(pid: int, groups: Path = GROUPS, proc: Path = PROC) -> list[Path]:
    """The control groups of a process that count kills, its own first; none where they cannot be read."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []
    for line in lines:
        _, kinds, path = (*line.split(":", 2), "", "")[:3]
        if kinds and "memory" not in kinds.split(","):
            continue
        top = groups / "memory" if kinds else groups
        below = [part for part in path.split("/") if part not in {"", ".", ".."}][:MAX_DEPTH]
        folders = [top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1)]
        if counting := [folder for folder in folders if _kills_of(folder) is not None]:
            return counting
    return []


@dataclass(frozen=True, slots=True)
class KillCounts:
    """Kills so far: by the folder of a control group, and of the `MACHINE`."""

    counts: Mapping[str, int]

    def since(self, earlier: KillCounts, order: Sequence[str]) -> str | None:
        """Who counted a kill since then: the first of `order` that can be compared decides, alone."""
        for name in order:
            if name in self.counts and name in earlier.counts:
                return name if self.counts[name] > earlier.counts[name] else None
        return None


def count_kills(folders: Sequence[Path], proc: Path = PROC) -> KillCounts:
    """The counts as they are now; what cannot be read is left out."""
    counts = {str(folder): kills for folder in folders if (kills := _kills_of(folder)) is not None}
    with suppress(OSError):
        if match := _KILLS.search((proc / "vmstat").read_bytes()):
            counts[MACHINE] = int(match[1])
    return KillCounts(counts)


def memory_words(counted_by: str) -> str:
    """Message about a kill, by the counter of `KillCounts` that counted it."""
    if counted_by == MACHINE:
        return "out of memory: the kernel killed a process on this machine at that time"
    for _, peak_name, limit_name in _VERSIONS:
        peak, limit = (_number(f"{counted_by}/{name}") for name in (peak_name, limit_name))
        if limit is not None and limit < NO_LIMIT:
            return f"out of memory: {_of(peak, limit)}"
    return "out of memory: the kernel killed a process in its control group at that time"


def _of(peak: int | None, limit: int) -> str:
    unit, name = (GIB, "GiB") if limit >= GIB else (MIB, "MiB")
    whole = f"{limit / unit:.4g} {name}"
    return f"the limit is {whole}" if peak is None else f"{peak / unit:.4g} of {whole}"


def _kills_of(folder: Path) -> int | None:
    for name, _, _ in _VERSIONS:
        with suppress(OSError):
            if match := _KILLS.search((folder / name).read_bytes()):
                return int(match[1])
    return None


def _number(path: str) -> int | None:
    try:
        text = Path(os.fspath(path)).read_bytes().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
