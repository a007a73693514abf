"""Launch of a wrapped command, with its end."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from rla_agent.model.process_ending import Ending
from rla_agent.model.run_record import RunRecord
from rla_client.contract.process.stop_signals import FOR_ANYTHING

SOON_S = 900.0  # Slurm's --signal comes a minute or some before the limit


@dataclass(frozen=True, slots=True)
class StopSignal:
    """A signal that told the command to stop, and when it came (Unix seconds)."""

    number: signal.Signals
    at: float

    def ended(self, record: RunRecord) -> bool:
        """Whether a run was open when it came, and ended after it (after USR1 and USR2: soon)."""
        if record.closed is None or record.closed < self.at:
            return False
        return self.number not in FOR_ANYTHING or record.closed - self.at < SOON_S


@dataclass(frozen=True, slots=True)
class CommandLaunch:
    """A command that was run: its RLA_LAUNCH, process and exit, and the signal that told it to stop."""

    name: str
    pid: int
    ending: Ending
    told: StopSignal | None = None
