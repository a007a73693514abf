"""Calls of systemctl."""

from __future__ import annotations

import subprocess

from rla_client.contract.agent.systemd_unit import Unit

SYSTEMCTL_TIMEOUT_S = 60.0  # TimeoutStartSec of the unit: it may first drain an autostarted agent


def systemctl(unit: Unit, verb: str) -> subprocess.CompletedProcess[str]:
    """Run systemctl for a unit; a failure is in the result, never raised."""
    command = unit.command(verb)
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=unit.environment(),
            timeout=SYSTEMCTL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def manager_reachable(unit: Unit) -> bool:
    """Whether systemd answers for this user."""
    done = systemctl(unit, "is-active")
    return done.stdout.strip() in {"active", "inactive", "failed", "activating", "deactivating", "reloading"}
