"""What other threads ask of a volume thread, through its queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    """A stream folder that belongs to this volume; `root` is its data root, where that is known."""

    stream: str
    folder: Path
    root: str = ""


@dataclass(frozen=True, slots=True)
class JobsDone:
    """A job ended."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Take in what is there, commit and end; not later than `deadline` (monotonic)."""

    deadline: float
