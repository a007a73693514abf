"""From a project's `rla_config.yaml` to what the replicator needs: scope, and how to open a session.

The worker reads the YAML file itself and reads it again when it changes, so no secret passes
through spool, wire or state. `Target.name` says where things go, without secrets; it is the key of
the ledger, so another server or root starts a ledger of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from rla_agent.replicate.backend.bucket_connect import bucket_name, open_bucket
from rla_agent.replicate.backend.connect import resolve_login
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.sftp import open_sftp
from rla_agent.replicate.backend.target import BlockedError, Session
from rla_agent.replicate.worker.scan import Scope
from rla_client.config.schema import BUCKETS, LOCAL, Config
from rla_client.contract.paths import user_name

if TYPE_CHECKING:
    from rla_agent.replicate.registry import Entry
    from rla_client.config.schema import RemoteSetting

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
    return Target(
        _name(remote),
        lambda: _connect(config, private),
        connections=1 if protocol == "ftp" else remote.connections,
        rate=remote.rate_limit_bytes_s,
        retention=config.agent.replicate_retention,
        append_every_s=remote.append_every_s if protocol in BUCKETS else 0.0,
    )


def _name(remote: RemoteSetting) -> str:
    """See `Target.name`."""
    protocol, root = remote.file_transfer_protocol, remote.remote_data_root
    if protocol in BUCKETS:
        return bucket_name(remote)
    if protocol in LOCAL:
        return f"{protocol}:{root}"
    port = f":{remote.port}" if remote.port else ""
    user = remote.username or user_name() or os.getuid()
    return f"{protocol}://{user}@{remote.ftp_server}{port}/{root}"


def _open_ftp(config: Config, _private: Path) -> Session:
    from rla_agent.replicate.backend.ftp import open_ftp  # noqa: PLC0415 - only when asked for

    return open_ftp(config.remote_setting)


def _open_sftp(config: Config, private: Path) -> Session:
    remote = config.remote_setting
    return open_sftp(resolve_login(remote, private, config.path), remote.remote_data_root)


def _open_bucket(config: Config, _private: Path) -> Session:
    return open_bucket(config.remote_setting)


_BACKENDS: Final[dict[str, Callable[[Config, Path], Session]]] = {
    "sftp": _open_sftp,
    "ftp": _open_ftp,
    "folder": lambda config, _private: FolderSession(config.remote_setting.remote_data_root),
    **dict.fromkeys(BUCKETS, _open_bucket),
}
"""What opens a session, by protocol. A new backend is a line here, and its name one of `config.schema`'s."""


def _connect(config: Config, private: Path) -> Session:
    remote = config.remote_setting
    if not remote.remote_data_root and remote.file_transfer_protocol not in BUCKETS:
        raise BlockedError(
            "connect", b"", "REMOTE_SETTING.remote_data_root is empty", "name the master's folder"
        )
    return _BACKENDS[remote.file_transfer_protocol](config, private)
