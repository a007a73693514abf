"""Settings of the agent of a machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rla_agent.store.config_reader import ConfigReader
from rla_client.config.machine_config import MACHINE_KEYS, RUN_KEYS, machine_config_path
from rla_client.config.schema import AgentConfig
from rla_client.contract.errors import ConfigError

START_WAIT_S = 10.0  # for the agent's own, whose settings hold until its end
_log = logging.getLogger("rla_agent.config")


def agent_settings(config: Path | None) -> AgentConfig:
    """The AGENT section of the agent's own configuration; the defaults where it cannot be read in time.

    Raises:
        ConfigError: it has faults.
    """
    if config is None:
        return AgentConfig()
    found = ConfigReader().reading(os.path.abspath(config), START_WAIT_S)
    if found is None:
        _log.warning("%s cannot be read now; the agent serves with the default settings", config)
        return AgentConfig()
    if found.config is None:
        raise ConfigError(str(config), list(found.faults))
    return found.config.agent


@dataclass(frozen=True, slots=True)
class InForce:
    """The settings in force.

    Attributes:
        agent: the AGENT section.
        sources: key → the file that its value comes from, `default` where none says it.
        faults: of the machine's file, which does not count then.
    """

    agent: AgentConfig
    sources: Mapping[str, str]
    faults: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, dict[str, Any]]:
        """For `status`."""
        return {
            key: {"value": getattr(self.agent, key), "source": source} for key, source in self.sources.items()
        }


def settings_in_force(config: Path | None, *, autostarted: bool) -> InForce:
    """The settings of a machine's agent: one file for all projects, whoever starts it.

    Args:
        config: named on the command line, where it counts most; by a client, it is just the first project's.
        autostarted: by a client.

    Raises:
        ConfigError: `config` has faults.
    """
    named = agent_settings(config)
    path, machine = machine_config_path(), AgentConfig()
    found = ConfigReader().reading(str(path), START_WAIT_S)
    if found is not None and found.config is not None:
        machine = found.config.agent
    faults = found.faults if found is not None and found.config is None and found.changed is not None else ()
    if faults or found is None:
        _log.error("%s does not count: %s", path, "; ".join(faults) or "it cannot be read now")
    values, sources, usual = {}, {}, AgentConfig()
    for key in (*MACHINE_KEYS, *RUN_KEYS):
        values[key], sources[key] = getattr(machine, key), str(path)
        if not autostarted and getattr(named, key) != getattr(usual, key):
            values[key], sources[key] = getattr(named, key), str(config)
        elif values[key] == getattr(usual, key):
            sources[key] = "default"
    return InForce(replace(machine if autostarted else named, **values), sources, faults)
