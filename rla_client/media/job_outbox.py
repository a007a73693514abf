"""Interface of the outbox for recorders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class JobOutbox(Protocol):
    """The part of the outbox that recorders use."""

    @property
    def stream_folder(self) -> Path | None:
        """Folder of this process's stream; its name is the stream's."""

    @property
    def blobs_folder(self) -> Path | None:
        """Folder for payloads; None if there is no spool, or no room in it."""

    @property
    def blob_room(self) -> int:
        """Bytes that another payload may have."""

    @property
    def why_refused(self) -> str:
        """Why a job was not taken."""

    def job(self, kind: str, fields: dict[str, Any]) -> bool:
        """Append one JOB frame; returns False if nobody will do the job."""

    def file(self, kind: str, path: str, content: bytes) -> bool:
        """Send a small file of the item to the agent; returns False if it will not be written."""

    def lose(self, kind: str, name: str, reason: str) -> None:
        """Count something that was lost."""

    def agent_alive(self, *, memory: bool = False) -> bool:
        """Whether an agent serves this machine; with `memory`, one that sees this process's /dev/shm."""
