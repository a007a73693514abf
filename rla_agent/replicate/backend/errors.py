"""Errors of replication targets.

Each names the operation, the path and what the operator can do.

After `LinkError` the session is broken: close it and open a new one.
"""

from __future__ import annotations

from typing import Final

from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_client.contract.errors import RlaError

_OF_THE_LINK: Final = frozenset(
    {"connect", "log in", "start sftp", "talk to the master", "send", "fetch", "read ~/.ssh/config"}
)
"""Operations that concern no file, where they name none."""


class TargetError(RlaError):
    """An operation on the master failed.

    Attributes:
        operation: the attempted operation, a verb.
        path: relative path on the master, as text.
        hint: what the operator can do; empty when nothing is needed.
    """

    def __init__(self, operation: str, path: bytes, why: str, hint: str = "") -> None:
        self.operation = operation
        self.path = path.decode("utf-8", "backslashreplace")
        self.why = why
        self.hint = hint
        place = self.path or ("" if operation in _OF_THE_LINK else "the remote root")
        super().__init__(f"{operation} {place}".rstrip() + f": {why}")


class TransientError(TargetError):
    """May succeed later: the link, a restart of the server, a temporary shortage."""


class LinkError(TransientError):
    """The connection cannot be made or is lost; the session cannot be used any more."""


class FullError(TransientError):
    """The master cannot store anything now: it has no space left, or its disk is mounted read-only."""


class MissingError(TargetError):
    """The file or folder is not there."""


class DeniedError(TargetError):
    """The master refuses, and will continue refusing: permission, quota, a name it cannot store."""


class ConflictError(TargetError):
    """The final name belongs to a file that we did not put there. `found` is its state."""

    def __init__(self, operation: str, path: bytes, found: RemoteStat) -> None:
        self.found = found
        super().__init__(operation, path, f"the master's file is not as it was left ({found.size} bytes)")


class SourceChangedError(RlaError):
    """The local file changed while it was sent; nothing was renamed."""

    def __init__(self, path: bytes) -> None:
        super().__init__(path.decode("utf-8", "backslashreplace"))


class UnreadableError(RlaError):
    """The local file gave an error (`why`) while it was sent; nothing was renamed.

    Not an OSError, since targets convert these into their own errors.
    """

    def __init__(self, path: bytes, why: OSError) -> None:
        self.why = why
        super().__init__(f"{path.decode('utf-8', 'backslashreplace')}: {why.strerror or why}")


class BlockedError(TargetError):
    """Nothing can go to this target until somebody acts: host key, login, missing root, wrong settings."""


class NoRootError(BlockedError):
    """The remote root is missing; only `rla-agent trust` makes it, on request."""


class HostKeyError(BlockedError):
    """The master's host key is unknown or has changed."""


class LoginError(BlockedError):
    """The master refused every key and password."""
