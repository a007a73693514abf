"""Replication target of a database, by its configuration.

The worker reads the YAML file itself and reads it again when it changes, so no secret passes through spool,
wire or state. `Target.name` identifies the destination without secrets; it is the key in the ledger, so
another server or root has rows of its own. A new backend is a line in `_BACKENDS`, with its traits.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import BlockedError
from rla_agent.replicate.backend.session import TargetSession
from rla_client.config.schema import BUCKETS, LOCAL, Config
from rla_client.contract.process.account import user_name

if TYPE_CHECKING:
    from rla_client.config.schema import RemoteSetting


@dataclass(frozen=True, slots=True)
class Target:
    """Where a database goes.

    Attributes:
        name: `sftp://user@host:port/root`, no secrets.
        open: connects; resolves keys and passwords anew each time.
        connections: how many at most.
        rate: bytes per second, 0 for no limit.
        retention: `mirror` or `keep`.
        append_every_s: seconds between two appends to a run's files, where each has a cost; 0: as they come.
        confirms: acknowledged bytes may yet be lost, so they are confirmed later (`worker.confirm`).
    """

    name: str
    open: Callable[[], TargetSession]
    connections: int
    rate: int
    retention: str
    append_every_s: float = 0.0
    confirms: bool = True


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of master, with its traits: other modules ask for these and not for its name.

    Attributes:
        open: connects; `private`: `<state>/replicate`.
        one_session_only: it does not take several sessions at once.
        warning: why another kind is better, for `doctor`; empty: it is not.
        appends_cost: an append costs about as much as a file, so that they are made more rarely.
        durable_at_once: acknowledged bytes are durable.
    """

    open: Callable[[Config, Path], TargetSession]
    one_session_only: bool = False
    warning: str = ""
    appends_cost: bool = False
    durable_at_once: bool = False


def target(config: Config, private: Path) -> Target:
    """The target of the config's database. `private`: `<state>/replicate`."""
    remote = config.remote_setting
    backend = backend_of(remote)
    return Target(
        _name(remote),
        lambda: _connect(config, private),
        connections=1 if backend.one_session_only else remote.connections,
        rate=remote.rate_limit_bytes_s,
        retention=config.agent.replicate_retention,
        append_every_s=remote.append_every_s if backend.appends_cost else 0.0,
        confirms=not backend.durable_at_once,
    )


def backend_of(remote: RemoteSetting) -> Backend:
    """The kind of master that a config names."""
    return _BACKENDS[remote.file_transfer_protocol]


def _name(remote: RemoteSetting) -> str:
    """See `Target.name`."""
    protocol, root = remote.file_transfer_protocol, remote.remote_data_root
    if protocol in BUCKETS:
        from rla_agent.replicate.backend.bucket_login import bucket_name  # noqa: PLC0415

        return bucket_name(remote)
    if protocol in LOCAL:
        return f"{protocol}:{root}"
    port = f":{remote.port}" if remote.port else ""
    user = remote.username or user_name() or os.getuid()
    return f"{protocol}://{user}@{remote.ftp_server}{port}/{root}"


def _open_sftp(config: Config, private: Path) -> TargetSession:
    from rla_agent.replicate.backend.ssh_connection import open_sftp  # noqa: PLC0415
    from rla_agent.replicate.backend.ssh_login import resolve_login  # noqa: PLC0415

    remote = config.remote_setting
    return open_sftp(resolve_login(remote, private, config.path), remote.remote_data_root)


def _open_ftp(config: Config, _private: Path) -> TargetSession:
    from rla_agent.replicate.backend.ftp import open_ftp  # noqa: PLC0415

    return open_ftp(config.remote_setting)


def _open_folder(config: Config, _private: Path) -> TargetSession:
    from rla_agent.replicate.backend.folder import FolderSession  # noqa: PLC0415

    return FolderSession(config.remote_setting.remote_data_root)


def _open_bucket(config: Config, _private: Path) -> TargetSession:
    from rla_agent.replicate.backend.bucket import open_bucket  # noqa: PLC0415

    return open_bucket(config.remote_setting)


# each imports its module when a session is opened
_BACKENDS: Final = {
    "sftp": Backend(_open_sftp),
    "ftp": Backend(
        _open_ftp,
        one_session_only=True,
        warning=(
            "FTP sends password and files in the clear, cannot append safely, and may not keep permissions"
        ),
    ),
    "folder": Backend(_open_folder),
    **dict.fromkeys(BUCKETS, Backend(_open_bucket, appends_cost=True, durable_at_once=True)),
}
"""By protocol. A new backend is a line here, and its name one of `config.schema`'s."""


def _connect(config: Config, private: Path) -> TargetSession:
    remote = config.remote_setting
    if not remote.remote_data_root and remote.file_transfer_protocol not in BUCKETS:
        what = "REMOTE_SETTING.remote_data_root is empty"
        raise BlockedError("connect", b"", what, "name the master's folder")
    return backend_of(remote).open(config, private)
