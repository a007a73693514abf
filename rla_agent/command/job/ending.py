"""End of a command: exit code or signal."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from rla_agent.model.run_record import RunRecord
from rla_client.contract.process.stop_signals import FOR_ANYTHING, signal_of

SOON_S = 900.0  # Slurm's --signal comes a minute or some before the limit


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended: `code`, or `signal` when one killed it."""

    code: int | None
    signal: int | None

    @classmethod
    def of(cls, wait_status: int) -> Ending:
        """From what waitpid gave."""
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
class StopSignal:
    """A signal that told the command to stop, and when it came (Unix seconds)."""

    number: signal.Signals
    at: float

    def ended(self, record: RunRecord) -> bool:
        """Whether a run was open when it came, and ended after it; of USR1 and USR2, soon after it."""
        if record.closed is None or record.closed < self.at:
            return False
        return self.number not in FOR_ANYTHING or record.closed - self.at < SOON_S


@dataclass(frozen=True, slots=True)
class Launch:
    """One command that was run: its RLA_LAUNCH, process and end; and what told it to stop."""

    name: str
    pid: int
    ending: Ending
    told: StopSignal | None = None
