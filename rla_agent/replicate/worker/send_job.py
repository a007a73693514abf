"""Job of sending one file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rla_agent.replicate.backend.errors import TransientError
from rla_agent.replicate.backend.remote_stat import Twin
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger_rows import Due, SendAttempt
from rla_agent.replicate.worker.file_decision import Append, ReplaceFile, SetMode


class NotYetError(TransientError):
    """No complete record to send so far."""


@dataclass(frozen=True, slots=True)
class SendJob:
    """One file to send. `temp`: name to use; `start`: bytes of this version that it has already.

    `sure`: how many of these were synced.

    `twin`: a file on the master that has the same content and may be linked. `local`: the planned version;
    the ledger has its size and time, so no other one may be sent (None: any version).

    `of_whole`: SHA-256 of the `whole.json` that must be there, since others may replace it (`sharded_lost`).
    """

    due: Due
    action: ReplaceFile | Append | SetMode
    temp: bytes
    start: int = 0
    twin: Twin | None = None
    local: Local | None = None
    sure: int = 0
    of_whole: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes to send."""
        if isinstance(self.action, SetMode):
            return 0
        return self.action.upto - self.action.offset if isinstance(self.action, Append) else self.action.size

    @property
    def uses_temp(self) -> bool:
        """Whether the master may have bytes under `temp` afterwards; an append may become an upload."""
        return not isinstance(self.action, SetMode)

    @property
    def attempts(self) -> tuple[SendAttempt, ...]:
        """Versions that it may leave under the final name."""
        if isinstance(self.action, SetMode) or self.local is None:
            return ()
        if isinstance(self.action, Append):
            return (SendAttempt(self.action.upto, None),)
        sent = SendAttempt(self.action.size, self.local.mtime_ns // 10**9)
        twin = self.twin
        return (sent,) if twin is None else (sent, SendAttempt(twin.left.size, twin.left.mtime_s))


@dataclass(frozen=True, slots=True)
class FolderMode:
    """Permission bits for a folder of the master. `number`: of the ledger; `shared`: of several items."""

    number: int
    path: bytes
    mode: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """The file is on the master.

    `kept`: a foreign file was moved aside to this name; `read_s`: seconds spent on comparing sent bytes;
    `synced`: it is on the master's disk, None: nothing was written there.
    """

    job: SendJob
    record: SentRecord
    kept: bytes = b""
    read_s: float = 0.0
    synced: bool | None = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The file could not be sent."""

    job: SendJob
    error: Exception


Result: TypeAlias = "Sent | Failed"
