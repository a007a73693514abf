"""The systemd unit of a user's agent."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from rla_client.contract.agent.agent_environment import clean_environment
from rla_client.contract.agent.places import STATE_VARIABLE
from rla_client.contract.process.account import user_home

UNIT_NAME = "rla-agent.service"
SYSTEM_UNIT_FOLDER = Path("/etc/systemd/system")


@dataclass(frozen=True, slots=True)
class Unit:
    """A systemd unit that runs the agent of this user."""

    name: str
    system: bool

    def command(self, *words: str) -> list[str]:
        """The systemctl command for this unit; `words` end with the verb."""
        scope = ["--no-ask-password"] if self.system else ["--user"]
        return ["systemctl", *scope, *words, self.name]

    def environment(self) -> dict[str, str]:
        """Environment in which systemctl reaches the user's service manager, also from cron or su."""
        environment = clean_environment()
        runtime = f"/run/user/{os.getuid()}"
        if not self.system and os.path.isdir(runtime):
            environment.setdefault("XDG_RUNTIME_DIR", runtime)
        return environment


def installed_unit() -> Unit | None:
    """The unit that serves this user, None without one; units serve the default places only."""
    import shutil  # noqa: PLC0415 - not at import of the package

    if STATE_VARIABLE in os.environ or shutil.which("systemctl") is None:
        return None
    if unit_file() is not None:
        return Unit(UNIT_NAME, system=False)
    try:
        name = f"rla-agent@{pwd.getpwuid(os.getuid()).pw_name}.service"
    except KeyError:
        return None
    enabled = SYSTEM_UNIT_FOLDER / "multi-user.target.wants" / name
    return Unit(name, system=True) if enabled.is_symlink() else None


def unit_file() -> Path | None:
    """The user's installed systemd unit, None without one."""
    base = os.environ.get("XDG_CONFIG_HOME") or user_home() / ".config"
    path = Path(base, "systemd", "user", UNIT_NAME)
    return path if path.exists() else None
