"""States of a replicated file."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Local:
    """A file here. Times in nanoseconds.

    `mode`: permission bits that its copies get (`copy_modes`); None: unknown, in rows of older ledgers. They
    are no part of `version`, because the ctime changes with them.
    """

    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int | None = field(default=None, compare=False)

    @property
    def version(self) -> tuple[int, int, int, int]:
        """Identity of a version: inode, size, modification and change time."""
        return self.ino, self.size, self.mtime_ns, self.ctime_ns


@dataclass(frozen=True, slots=True)
class Owned:
    """The agent's state of an output: `size` bytes of `generation` are committed; `final`: no more come."""

    generation: int
    size: int
    final: bool


@dataclass(frozen=True, slots=True)
class SentRecord:
    """The ledger's row: the file as it was when it was last sent, and what the master got.

    Attributes:
        local: state here at that moment.
        generation: of an owned output, else 0.
        acked: bytes on the master.
        crc: CRC-32 of these bytes; head_crc, tail_crc: of their first and last 4 KiB.
        sha256: of these bytes, where they were sent in one piece; else None.
        remote_mtime_s: modification time on the master after our last write.
    """

    local: Local
    generation: int
    acked: int
    crc: int
    head_crc: int
    tail_crc: int
    sha256: bytes | None
    remote_mtime_s: int
