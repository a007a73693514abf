"""Wake-up of the replication worker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rla_agent.replicate.hints import Announcer


def wake_worker(state: Path, folders: Sequence[Path] = ()) -> None:
    """Wake the worker."""
    with closing(Announcer(state)) as announcer:
        announcer.now(str(folder.absolute()) for folder in folders)
