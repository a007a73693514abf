"""The start of an agent from any process.

It uses systemd where a unit is installed for this user, else a shell that puts the agent into the background
and ends, so that the agent is no child of this process: no zombie, no surprise for code that waits for its
own children. Where a user unit is installed and the user's service manager cannot be reached
(cron, a batch job), the agent starts without it; the unit takes over when it is started. A system unit that
only root may start is never replaced: rows then wait in the spool.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rla_client.contract.agent.agent_environment import clean_environment
from rla_client.contract.agent.agent_process import START_TIMEOUT_S
from rla_client.contract.agent.places import Places
from rla_client.contract.agent.systemd_unit import installed_unit


def start_agent(
    places: Places, config_path: Path | None = None, secrets: Mapping[str, str] | None = None
) -> bool:
    """Start an agent for `places` without waiting for it to be ready.

    Args:
        places: of the agent.
        config_path: configuration it starts with.
        secrets: further environment variables it needs, see `config.schema.password_variables`.

    Returns:
        False when the user stopped it on purpose (`rla-agent stop`) or it cannot be started.
    """
    if places.stopped:
        return False
    unit = installed_unit()
    if unit is not None and _runs(unit.command("--no-block", "start"), unit.environment()):
        return True
    if unit is not None and unit.system:
        return False
    environment = clean_environment() | dict(secrets or {})
    return _runs(detached_command(config_path, autostarted=True), environment)


def drain_once(timeout_s: float) -> None:
    """Ingest the spool by a process that ends afterwards, without an agent."""
    _runs([sys.executable, "-m", "rla_agent", "drain"], clean_environment(), timeout_s)


def _runs(command: list[str], environment: dict[str, str], timeout_s: float = START_TIMEOUT_S) -> bool:
    import subprocess  # noqa: PLC0415 - not at import of the package

    try:
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            start_new_session=True,
            close_fds=True,
            timeout=timeout_s,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def detached_command(config_path: Path | None, *, autostarted: bool) -> list[str]:
    """Command that puts an agent into the background, prints its process id and ends at once."""
    arguments = [sys.executable, "-m", "rla_agent.daemon", "--background"]
    if autostarted:
        arguments.append("--idle-exit")
    if config_path is not None:
        arguments += ["--config", os.path.abspath(config_path)]
    return ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 & echo $!', "sh", *arguments]
