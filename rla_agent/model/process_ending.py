"""End of a process in its run's record."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from rla_client.contract.process.stop_signals import signal_of

UNKNOWN_END = "the process ended without closing the run"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended: `code`, or `signal` when one killed it."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, wait_status: int) -> Ending:
        """Parse a wait status."""
        code = os.waitstatus_to_exitcode(wait_status)
        return cls(code, None) if code >= 0 else cls(None, -code)

    @property
    def status(self) -> int:
        """The shell's exit status."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    @property
    def words(self) -> str:
        """For a run's reason."""
        if self.signal is None:
            named = signal_of(self.code)
            return f"exit code {self.code}" if named is None else f"exit code {self.code} ({named.name})"
        with suppress(ValueError):
            return f"killed by {signal.Signals(self.signal).name}"
        return f"killed by signal {self.signal}"


@dataclass(frozen=True, slots=True)
class WriterEnd:
    """End of a process that did not close its run.

    Attributes:
        ending: by the kernel; None where it is unknown.
        memory: evidence of an OOM kill, for people; empty: none.
    """

    ending: Ending | None = None
    memory: str = ""

    @property
    def words(self) -> str:
        """For a run's reason."""
        if self.ending is None:
            return f"{UNKNOWN_END}, likely {self.memory}" if self.memory else UNKNOWN_END
        if self.ending.signal is None:
            return f"{self.ending.words}, without closing the run"
        likely = self.memory and self.ending.signal == signal.SIGKILL
        return f"{self.ending.words}, likely {self.memory}" if likely else self.ending.words
