"""Files to send, with their results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rla_agent.replicate.backend.errors import TransientError
from rla_agent.replicate.backend.remote_stat import Twin
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger_rows import SendAttempt, Due
from rla_agent.replicate.worker.file_decision import Append, ReplaceFile, SetMode


class NotYetError(TransientError):
    """No whole record to send so far."""


@dataclass(frozen=True, slots=True)
class SendJob:
    """One file to send. `temp`: name to use; `start`: bytes that it holds already of this version.

    `sure`: of these, what was synced.

    `twin`: a file on the master that has the same content and may be linked. `local`: the version that
    was planned; the ledger has noted its size and time, so no other one may go (None: whatever is there).

    `of_whole`: SHA-256 of the `whole.json` that must be there, for others may replace it (`sharded_lost`).
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
        """Bytes that go."""
        if isinstance(self.action, SetMode):
            return 0
        return self.action.upto - self.action.offset if isinstance(self.action, Append) else self.action.size

    @property
    def uses_temp(self) -> bool:
        """Whether the master may have bytes under `temp` when it ends; an append may become an upload."""
        return not isinstance(self.action, SetMode)

    @property
    def attempts(self) -> tuple[SendAttempt, ...]:
        """What it may leave under the final name."""
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
    """The master has it.

    `kept`: a foreign file was moved aside to this name; `read_s`: seconds spent on comparing what was sent
    before; `synced`: it is on the master's disk, None: nothing was written there.
    """

    job: SendJob
    record: SentRecord
    kept: bytes = b""
    read_s: float = 0.0
    synced: bool | None = False


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be sent."""

    job: SendJob
    error: Exception


Result: TypeAlias = "Sent | Failed"
