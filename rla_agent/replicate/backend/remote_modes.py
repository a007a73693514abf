"""Computation of permission bits on a target.

Each backend sets them. Setuid, setgid and sticky bits are never copied; those of the master's folders stay.
"""

from __future__ import annotations

import logging
import stat
from typing import Final

from rla_agent.replicate.backend.remote_stat import RemoteStat

log = logging.getLogger("rla_agent.replicate")
_warned: Final[set[str]] = set()


def mode_for_umask(mode: int) -> int:
    """Permission bits for making a shared folder; the server's umask decides whether its group may write."""
    return mode | 0o020 if mode & 0o050 == 0o050 else mode  # noqa: PLR2004 - the group may list and enter


def new_mode(found: RemoteStat, mode: int, *, only_less: bool = False) -> int | None:
    """Bits to set so that a remote file or folder has the permission bits `mode`; None: nothing to set.

    `only_less` as in `TargetSession.set_modes`. Setgid and sticky of a folder stay, since shared groups rely
    on them.
    """
    if found.mode is None or found.kind not in {"file", "folder"}:
        return None
    wanted = mode
    if only_less:
        group = 0o070 if found.mode & stat.S_ISGID else mode_for_umask(mode) & 0o070
        wanted = found.mode & (mode | 0o700 | (group if found.kind == "folder" else 0))
    if wanted & 0o777 == found.mode & 0o777:
        return None
    return wanted & 0o777 | (found.mode & 0o7000 if found.kind == "folder" else 0)


def warn_of_modes(server: str, why: str) -> None:
    """Warn once for each server that does not let permissions be set."""
    if server in _warned:
        return
    _warned.add(server)
    log.warning(
        "%s does not allow permissions to be set (%s): files there keep the permissions they are created "
        "with; rla verify lists copies that are more open than their source",
        server,
        why,
    )
