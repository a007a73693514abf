"""Small file on its way to a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rla_agent.replicate.backend.remote_stat import RemoteStat, Twin
from rla_agent.replicate.backend.upload import Upload


@dataclass(frozen=True, slots=True)
class SmallFile:
    """One file of a batch, its content in memory.

    Attributes:
        path: final name.
        temp: temp name in the same folder, never used before.
        data: content.
        mtime_s: modification time to give it.
        expect: state of the final name now; None: nothing there.
        unchanged: whether `data` still is the file's content; called just before the rename.
        twin: may be hard-linked instead of writing `data`, if it is unchanged; the file then has the twin's
            time. For files that nobody writes in place. One with other permissions is not linked.
        mode: permission bits to give it.
        durable: False for a file that need not survive a power cut there.
    """

    path: bytes
    temp: bytes
    data: bytes
    mtime_s: int
    expect: RemoteStat | None
    unchanged: Callable[[], bool]
    twin: Twin | None = None
    mode: int = 0o600
    durable: bool = True

    def as_upload(self) -> Upload:
        """The same as an `Upload`, for a target that takes one file at a time."""
        return Upload(
            self.path,
            self.temp,
            self.mtime_s,
            self.expect,
            self.unchanged,
            lambda at, count: self.data[at : at + count],
            len(self.data),
            0,
            lambda _: None,
            self.mode,
        )
