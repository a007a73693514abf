"""Exit detection of writer processes.

Linux 6.15 and later give the exit status to whoever held a descriptor of the process when it ended. OOM kills
are recognized by the kernel's counters (`oom_kills`): the oldest of the last `LOOKS` samples, one each
`LOOK_S`, is compared with a sample after the exit. The kernel counts when it decides; a process of 20 GiB
then took 5 s to exit. A kill long before that is not mistaken for this one.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_agent.model.process_ending import Ending, WriterEnd
from rla_agent.pipeline.oom_kills import MACHINE, KillCounts, count_kills, memory_groups, memory_words
from rla_client.contract.process.syscalls import exit_status, process_descriptor
from rla_client.contract.spool.segments import MAX_HOLDER_BYTES
from rla_client.contract.spool.writer_liveness import LOCK_NAME, process_lives

LOOK_S = 4.0
LOOKS = 4
MAX_WATCHED = 256  # processes: each takes a descriptor


@dataclass(slots=True)
class _Watched:
    """One process: its descriptor, its control groups, the counts of the last looks, oldest first."""

    descriptor: int
    groups: list[Path]
    counts: deque[KillCounts]


class WriterEnds:
    """The processes of live streams, by the stream's name."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._next_look = 0.0

    def watch(self, stream: str, folder: Path, pid: int) -> None:
        """Watch the process of a stream, if it is still the one that its lock file names."""
        if stream in self._watched or len(self._watched) >= MAX_WATCHED:
            return
        with suppress(OSError):
            descriptor = process_descriptor(pid)
            try:
                named = (folder / LOCK_NAME).read_bytes()[:MAX_HOLDER_BYTES]
                if not (named.startswith(b"%d " % pid) and process_lives(named)):
                    raise ProcessLookupError
                groups = memory_groups(pid)
                counts = count_kills(groups)
            except OSError:
                os.close(descriptor)
                return
            self._watched[stream] = _Watched(descriptor, groups, deque([counts], maxlen=LOOKS))

    def look(self, now: float) -> None:
        """Sample the counters again, each `LOOK_S`; `now` is monotonic."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        known: dict[str, KillCounts] = {}  # runs of one container share their groups
        for one in self._watched.values():
            key = str(one.groups[:1])
            if key not in known:
                known[key] = count_kills(one.groups)
            one.counts.append(known[key])

    def end(self, stream: str) -> WriterEnd:
        """The exit of a stream's process, which is watched no longer."""
        one = self._watched.pop(stream, None)
        if one is None:
            return WriterEnd()
        status = exit_status(one.descriptor)
        os.close(one.descriptor)
        order = [*map(str, one.groups), MACHINE]
        counted_by = count_kills(one.groups).since(one.counts[0], order)
        return WriterEnd(
            None if status is None else Ending.of(status), memory_words(counted_by) if counted_by else ""
        )

    def close(self) -> None:
        """Stop watching."""
        for one in self._watched.values():
            os.close(one.descriptor)
        self._watched.clear()
