"""What other threads ask of a volume thread, through its queue; and its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rla_agent.volume import Volume

LAST_COMMIT_S = 1.0  # beyond the deadline of a stop

Answer = Callable[[bool], None]


@dataclass(frozen=True, slots=True)
class Data:
    """Bytes of a stream that came by message; an empty body only says: look."""

    stream: str
    number: int
    offset: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Flush:
    """Answer `peer` when everything before a position is durable; it asks again and again."""

    peer: bytes
    stream: str
    number: int
    offset: int
    media: bool
    answer: Answer


@dataclass(frozen=True, slots=True)
class Adopt:
    """A stream folder that belongs to this volume."""

    stream: str
    folder: Path


@dataclass(frozen=True, slots=True)
class JobsDone:
    """A job ended."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Take in what is there, commit and end; not later than `deadline` (monotonic)."""

    deadline: float


def stop_volumes(volumes: Collection[Volume], deadline: float, jobs_s: float) -> None:
    """Have volumes take in what is there, commit and end.

    Args:
        volumes: one that is still alive afterwards has threads that write.
        deadline: of taking in (monotonic).
        jobs_s: what jobs that run get beyond the end of taking in.
    """
    for volume in volumes:
        volume.put(Stop(deadline))
    last = deadline + LAST_COMMIT_S
    for volume in volumes:
        volume.through.wait(max(0.0, last - time.monotonic()))
    last = min(last, time.monotonic() + jobs_s)
    for volume in volumes:
        volume.join(max(0.0, last - time.monotonic()))
