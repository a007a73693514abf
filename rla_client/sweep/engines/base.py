"""Interface of sweep engines.

Queued Slurm jobs refer to this module and `Work` by name, so these keep their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Work:
    """One attempt of one run."""

    number: int  # of the run
    command: tuple[str, ...]  # program and arguments
    environment: Mapping[str, str]  # variables to add
    folder: str  # working folder
    output: str  # file for its output
    exit: str  # file for its exit status
    lock: str  # file that its processes hold locked


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """End of an attempt."""

    number: int  # of the run
    status: int | None  # as a shell's; None: unknown
    reason: str = ""  # by its engine


class Engine(Protocol):
    """Starts runs and reports their ends. Not thread-safe.

    Attributes:
        name: name of the engine.
        handle: default handle for `adopt` of runs for which `start` returns an empty one.
    """

    name: str
    handle: str

    def room(self) -> int:
        """Number of runs that can be started now."""

    def start(self, works: Sequence[Work]) -> list[str]:
        """Start runs, for which there must be room.

        Returns:
            The handle of each, by which `adopt` finds it again; it may be empty.

        Raises:
            SweepError: the engine cannot start runs.
        """

    def adopt(self, work: Work, handle: str) -> bool:
        """Supervise an earlier driver's run, until its end is reported; False if it does not live.

        Raises:
            SweepError: the run lives where this engine cannot supervise it.
        """

    def ended(self, timeout_s: float) -> list[AttemptEnded]:
        """The ends since the last call; waits up to `timeout_s` for the first."""

    def stop(self, numbers: Sequence[int], *, kill: bool) -> None:
        """Ask runs to end (SIGTERM), or kill them; `ended` reports their ends."""

    def close(self) -> None:
        """Release all resources; runs continue if the engine can leave them."""
