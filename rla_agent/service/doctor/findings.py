"""What a check of the doctor looks at, and what it finds."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rla_agent.replicate.report import attention, replication_status
from rla_agent.service.control import ask_status
from rla_agent.store.lock import read_holder, visible_holder
from rla_client.config.schema import CONFIG_NAME, Config, load_config
from rla_client.contract.agent_process import Unit, agent_alive, installed_unit
from rla_client.contract.errors import ConfigError, RlaError
from rla_client.contract.paths import Places, find_places

LEVELS = ("fault", "warning", "note")
ASK_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        name: stable identifier.
        level: fault, warning or note.
        what: what is wrong.
        fix: what to do.
    """

    name: str
    level: str
    what: str
    fix: str

    def to_plain(self) -> dict[str, str]:
        """For `--json`."""
        return asdict(self)


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
    def here(cls, config_path: Path | None, system: Path = Path("/")) -> Surroundings:
        """This process's surroundings; the configuration of this folder unless one is named."""
        places = find_places()
        if config_path is None and Path(CONFIG_NAME).exists():
            config_path = Path(CONFIG_NAME)
        config, faults = _config(config_path)
        alive = agent_alive(places)
        return cls(
            places=places,
            config_path=config_path,
            config=config,
            config_faults=faults,
            environment=dict(os.environ),
            user=_user(),
            system=system,
            now=time.time(),
            alive=alive,
            holder=read_holder(places) if alive else {},
            status=_status(places) if alive else None,
            replication=tuple(attention(replication_status(places.state))),
            unit=installed_unit(),
        )

    @property
    def agent_pid(self) -> int | None:
        """Process id of the agent that holds the lock; None without one that can be seen from here."""
        return visible_holder(self.places) if self.alive else None

    def agent_environment(self) -> dict[str, str] | None:
        """What the agent was started with; None when there is none or it cannot be read."""
        try:
            raw = Path(f"/proc/{self.agent_pid}/environ").read_bytes()
        except OSError:
            return None
        pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
        return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _config(path: Path | None) -> tuple[Config, tuple[str, ...]]:
    if path is None:
        return Config(), ()
    try:
        return load_config(path), ()
    except ConfigError as error:
        return Config(), tuple(error.faults)


def _status(places: Places) -> Mapping[str, Any] | None:
    try:
        return ask_status(places, ASK_TIMEOUT_S)
    except RlaError:
        return None


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


Check = Callable[[Surroundings], Iterable[Finding]]
