"""Scope of a database's replication, by its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla_agent.replicate.registry import RegisteredDatabase
from rla_client.config.schema import Config

if TYPE_CHECKING:
    from rla_agent.replicate.worker.scan import ScanScope


def scope(entry: RegisteredDatabase, config: Config, host: str) -> ScanScope:
    """The scope of a database; `host` is this machine's name in run.json."""
    import pathspec  # noqa: PLC0415 - only where patterns are used

    from rla_agent.replicate.worker.scan import ScanScope  # noqa: PLC0415

    patterns = config.agent.replicate_ignore
    return ScanScope(
        host="" if entry.added_by == "user" else host,
        kinds=config.agent.replicate,
        ignore=pathspec.PathSpec.from_lines("gitwildmatch", patterns) if patterns else None,
        max_bytes=config.agent.replicate_max_file_bytes,
        off=frozenset(entry.off),
    )


def wanted(entry: RegisteredDatabase, config: Config) -> bool:
    """Whether a database is replicated: asked for by the user, or SEND_LOG_FILE with a server."""
    return config.remote_setting.named and (entry.added_by == "user" or config.send_log_file)
