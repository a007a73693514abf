"""Large file on its way to a target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rla_agent.replicate.backend.errors import SourceChangedError
from rla_agent.replicate.backend.remote_stat import RemoteStat

SYNC_BYTES: Final = 32 << 20  # of a large file that are synced while the next ones are sent


@dataclass(frozen=True, slots=True)
class Upload:
    """One large file.

    Attributes:
        path, temp, mtime_s, expect, unchanged, mode: as in `SmallFile`.
        read: `read(offset, count)` returns bytes of the source, `count` of them unless it shrank.
        size: bytes to send.
        start: confirmed bytes of an earlier attempt in `temp`; 0 for a new temp file.
        progress: called with the confirmed bytes from time to time; may wait (rate limit) or raise.
        sure: the synced bytes of `start`.
        synced: called with the synced bytes from time to time.
    """

    path: bytes
    temp: bytes
    mtime_s: int
    expect: RemoteStat | None
    unchanged: Callable[[], bool]
    read: Callable[[int, int], bytes]
    size: int
    start: int
    progress: Callable[[int], None]
    mode: int = 0o600
    sure: int = 0
    synced: Callable[[int], None] = lambda _: None

    def pieces(self, piece_bytes: int) -> Iterator[bytes]:
        """All of the source, from its beginning.

        Raises:
            SourceChangedError: it is shorter now.
        """
        at = 0
        while at < self.size:
            data = self.read(at, min(piece_bytes, self.size - at))
            if not data:
                raise SourceChangedError(self.path)
            at += len(data)
            self.progress(at)
            yield data

    def checked_pieces(self, piece_bytes: int) -> Iterator[bytes]:
        """`pieces`; the last one comes only after a check that the source has not changed."""
        last: bytes | None = None
        for piece in self.pieces(piece_bytes):
            if last is not None:
                yield last
            last = piece
        if not self.unchanged():
            raise SourceChangedError(self.path)
        if last is not None:
            yield last
