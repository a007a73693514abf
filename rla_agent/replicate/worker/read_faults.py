"""Faults of unreadable local paths."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from rla_client.contract.errors import RlaError

SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # of this process, not of a file
WAYS_OUT: Final = {
    errno.ENAMETOOLONG: "its path is too long: move it to a shorter one",
    errno.EACCES: "let the agent's user read it (chmod, chown)",
    errno.EPERM: "let the agent's user read it (chmod, chown)",
    errno.ENOTDIR: "a link or a file stands where a folder should be: replace it with a folder",
    errno.ELOOP: "a link there leads in a circle: replace it with a file or folder",
    errno.EINVAL: "replace it with a regular file",
    errno.ESTALE: "mount its file server again",
}


class ScanError(RlaError):
    """The data root cannot be read, or this process is short of resources; the scan ends here."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why a folder, or a file in it, could not be read, and how to fix that."""

    reason: str
    fix: str


def unread(error: OSError) -> Unread:
    """The fault for an error that a local folder or file gave.

    Raises:
        ScanError: the error is a shortage of this process.
    """
    if error.errno in SHORTAGES:
        raise ScanError(f"this machine is short of resources: {error.strerror}; retrying") from error
    fix = WAYS_OUT.get(error.errno or 0, "check the disk or file server that holds it")
    return Unread(f"cannot be read here: {error.strerror or error}", fix)
