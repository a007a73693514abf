"""The outbox, as recorders need it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class JobOutbox(Protocol):
    """What is needed of the outbox."""

    @property
    def stream_folder(self) -> Path | None:
        """Folder of this process's stream; its name is the stream's."""

    @property
    def blobs_folder(self) -> Path | None:
        """Folder for payloads; None while there is no spool, or no room in it."""

    @property
    def blob_room(self) -> int:
        """Bytes that one more payload may have."""

    @property
    def why_refused(self) -> str:
        """Why a job was not taken."""

    def job(self, kind: str, fields: dict[str, Any]) -> bool:
        """Append one JOB frame; False when nobody will do the job."""

    def file(self, kind: str, path: str, content: bytes) -> bool:
        """Have the agent keep a small file of the item; False when it will not."""

    def lose(self, kind: str, name: str, reason: str) -> None:
        """Count something that could not be kept."""

    def agent_alive(self, *, memory: bool = False) -> bool:
        """Whether an agent serves this machine; with `memory`, one that sees our /dev/shm."""
