"""From a project's `rla_config.yaml` to what the replicator needs: scope, and how to open a session.

The worker reads the YAML file itself and reads it again when it changes, so no secret passes
through spool, wire or state. `Target.name` says where things go, without secrets; it is the key of
the ledger, so another server or root starts a ledger of its own.
"""

from __future__ import annotations

import getpass
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rla_agent.replicate.backend.bucket_connect import bucket_name, open_bucket
from rla_agent.replicate.backend.connect import resolve_login
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.sftp import open_sftp
from rla_agent.replicate.backend.target import BlockedError, Session
from rla_agent.replicate.worker.scan import Scope
from rla_client.config.schema import BUCKETS, Config

if TYPE_CHECKING:
    from rla_agent.replicate.registry import Entry

Opener: TypeAlias = "Callable[[], Session]"


@dataclass(frozen=True, slots=True)
class Target:
    """Where a database goes.

    Attributes:
        name: `sftp://user@host:port/root`, no secrets.
        open: connects; resolves keys and passwords anew each time.
        connections: how many at most.
        rate: bytes per second, 0 for no limit.
        retention: `mirror` or `keep`.
        append_every_s: seconds between two appends to a run's files, where each costs; 0: as they come.
    """

    name: str
    open: Opener
    connections: int
    rate: int
    retention: str
    append_every_s: float = 0.0


def scope(entry: Entry, config: Config, host: str) -> Scope:
    """What of a database goes; `host` is this machine's name in run.json."""
    import pathspec  # noqa: PLC0415 - only where patterns are used

    patterns = config.agent.replicate_ignore
    return Scope(
        host="" if entry.added_by == "user" else host,
        kinds=config.agent.replicate,
        ignore=pathspec.PathSpec.from_lines("gitwildmatch", patterns) if patterns else None,
        max_bytes=config.agent.replicate_max_file_bytes,
        off=frozenset(entry.off),
    )


def wanted(entry: Entry, config: Config) -> bool:
    """Whether a database is replicated: asked for by the user, or SEND_LOG_FILE with a server."""
    return config.remote_setting.named and (entry.added_by == "user" or config.send_log_file)


def target(config: Config, private: Path) -> Target:
    """Where the config's database goes. `private`: `<state>/replicate`."""
    remote = config.remote_setting
    protocol = remote.file_transfer_protocol
    root = remote.remote_data_root
    if protocol == "folder":
        name = f"folder:{root}"
    elif protocol in BUCKETS:
        name = bucket_name(remote)
    else:
        port = f":{remote.port}" if remote.port else ""
        name = f"{protocol}://{remote.username or getpass.getuser()}@{remote.ftp_server}{port}/{root}"

    def connect() -> Session:
        if protocol in BUCKETS:
            return open_bucket(remote)
        if not root:
            raise BlockedError(
                "connect", b"", "REMOTE_SETTING.remote_data_root is empty", "name the master's folder"
            )
        if protocol == "folder":
            return FolderSession(root)
        if protocol == "ftp":
            from rla_agent.replicate.backend.ftp import open_ftp  # noqa: PLC0415 - only when asked for

            return open_ftp(remote)
        return open_sftp(resolve_login(remote, private, config.path), root)

    connections = 1 if protocol == "ftp" else remote.connections
    every = remote.append_every_s if protocol in BUCKETS else 0.0
    retention = config.agent.replicate_retention
    return Target(name, connect, connections, remote.rate_limit_bytes_s, retention, every)
