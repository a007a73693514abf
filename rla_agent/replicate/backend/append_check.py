"""Check of a file on the target before an append."""

from __future__ import annotations

from rla_agent.replicate.backend.errors import ConflictError
from rla_agent.replicate.backend.remote_stat import RemoteStat, same


def check_append(path: bytes, found: RemoteStat, offset: int, end: int, expect: RemoteStat) -> None:
    """Raise ConflictError unless the file is unchanged, or as one of our attempts may have left it."""
    unknown_try = offset < found.size <= end
    if not unknown_try and (found.size != offset or not same(found, expect)):
        raise ConflictError("append to", path, found)
