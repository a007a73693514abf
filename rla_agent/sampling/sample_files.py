"""Files of a run's samples: system.csv, event files.

These files are the agent's own: no frames stand behind them, a restart continues at their last whole
record, and a sample that could not be written is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from rla_agent.model.records import Record, Row
from rla_agent.outputs.lanes import Disk
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
_APPEND = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class SampledRun:
    """A run that is sampled, and the CPU seconds of its tree at the last sample."""

    opening: Opening
    name: str
    encoder: EventEncoder
    disk: Disk
    cpu_s: dict[int, float] = field(default_factory=dict)
    at: float = 0.0
    events_whole: bool = False  # the events were looked at since this agent began


def write_sample(tracked: SampledRun, values: dict[str, Any]) -> None:
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
