"""What other threads ask of a volume thread, through its queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rla_agent.pipeline.stream import Stream
from rla_agent.store.state import Changes
from rla_client.contract.opening import Opening

# all before is durable; how many media, and others, could not be kept
Answer = Callable[[bool, tuple[int, int]], None]


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


class RunObserver(Protocol):
    """Metric rules: they see each stream that opens, and their firings go into its commits."""

    def run_opened(self, stream: Stream) -> None:
        """A stream is taken in: its rules hold from here on."""

    def add_changes(self, streams: Iterable[Stream], changes: Changes) -> list[Stream]:
        """Put firings into a commit; returns the streams to clear once it has succeeded."""


class ItemObserver(Protocol):
    """Replication: it hears when an item begins, changes and ends."""

    def run_opened(self, opening: Opening) -> None:
        """A stream of an item is taken in."""

    def committed(self, streams: Iterable[Stream]) -> None:
        """Files of these streams' items have changed, and are on disk."""

    def run_ended(self, opening: Opening) -> None:
        """A stream was taken in to its end."""
