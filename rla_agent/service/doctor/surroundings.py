"""Inputs of the doctor's checks."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla_agent.replicate.problems import attention
from rla_agent.replicate.status import replication_status
from rla_agent.service.control_client import ask_status
from rla_agent.service.lock_holder import read_holder, visible_holder
from rla_client.config.project import CONFIG_NAME
from rla_client.config.schema import Config, load_config
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.agent.systemd_unit import Unit, installed_unit
from rla_client.contract.errors import ConfigError, RlaError

ASK_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the checks look at.

    Attributes:
        places: of the agent.
        config_path: the rla_config.yaml, None without one.
        config: what it says; the defaults where it has faults.
        config_faults: those.
        environment: of this process.
        user: login name.
        system: where the machine's own folders (etc, proc, var, dev) begin.
        now: Unix seconds.
        alive: an agent holds the lock.
        holder: what the lock file says.
        status: what the agent says, None where it says nothing.
        replication: what needs attention in replication, as `what` and `fix`.
        unit: the installed unit.
    """

    places: Places
    config_path: Path | None = None
    config: Config = field(default_factory=Config)
    config_faults: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    system: Path = Path("/")
    now: float = 0.0
    alive: bool = False
    holder: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] | None = None
    replication: tuple[Mapping[str, str], ...] = ()
    unit: Unit | None = None

    @classmethod
    def here(cls, config_path: Path | None) -> Surroundings:
        """This process's surroundings; the configuration of this folder unless one is named."""
        places = find_places()
        if config_path is None and Path(CONFIG_NAME).exists():
            config_path = Path(CONFIG_NAME)
        config, faults = Config(), list[str]()
        if config_path is not None:
            try:
                config = load_config(config_path)
            except ConfigError as error:
                faults = error.faults
        alive, status = agent_alive(places), None
        with suppress(RlaError):
            status = ask_status(places, ASK_TIMEOUT_S) if alive else None
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = str(os.getuid())
        return cls(
            places=places,
            config_path=config_path,
            config=config,
            config_faults=tuple(faults),
            environment=dict(os.environ),
            user=user,
            now=time.time(),
            alive=alive,
            holder=read_holder(places) if alive else {},
            status=status,
            replication=tuple(attention(replication_status(places.state))),
            unit=installed_unit(),
        )

    @property
    def agent_pid(self) -> int | None:
        """Process id of the agent that holds the lock; None without one that can be seen from here."""
        return visible_holder(self.places) if self.alive else None

    @property
    def lingers(self) -> bool:
        """Whether the user's service manager, and what belongs to the user, stays when they log out."""
        return (self.system / "var/lib/systemd/linger" / self.user).exists()

    def agent_environment(self) -> dict[str, str] | None:
        """What the agent was started with; None when there is none or it cannot be read."""
        try:
            raw = Path(f"/proc/{self.agent_pid}/environ").read_bytes()
        except OSError:
            return None
        pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
