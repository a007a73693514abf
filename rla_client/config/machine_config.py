"""Configuration of the machine."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla_client.config.schema import AgentConfig, load_config
from rla_client.contract.errors import ConfigError
from rla_client.contract.process.account import user_home

RUN_KEYS = ("stall_s", "sample_interval_s")
"""Keys of `AGENT` that a project may set for its runs; by default the machine's values hold."""
MACHINE_KEYS = ("commit_interval_s", "idle_exit_s", "open_files_max")
"""Keys of `AGENT` that have one value for all projects of a machine, see `machine_config_path`."""
_warned: set[str | None] = set()  # configurations with a warning so far


def machine_config_path() -> Path:
    """The user's configuration of this machine's agent, in the form of an `rla_config.yaml`.

    Only RUN_KEYS and MACHINE_KEYS of its section AGENT have an effect.
    """
    import platformdirs  # noqa: PLC0415 - not at import of the package

    try:
        return platformdirs.user_config_path("rla-agent") / "agent.yaml"
    except RuntimeError:
        return user_home() / ".config" / "rla-agent" / "agent.yaml"


def settings_of_run(settings: AgentConfig) -> dict[str, Any]:
    """The RUN_KEYS that a project sets, for the opening frame of its runs."""
    return {key: getattr(settings, key) for key in _set_keys(settings, RUN_KEYS)}


def warn_of_machine_keys(settings: AgentConfig, config: str | None) -> None:
    """Warn once that a project sets MACHINE_KEYS, which have no effect there.

    Args:
        settings: of the project.
        config: its file, None for a dict.
    """
    keys = _set_keys(settings, MACHINE_KEYS)
    if not keys or config in _warned:
        return
    path, machine = machine_config_path(), AgentConfig()
    with suppress(ConfigError):
        machine = load_config(path).agent if path.exists() else machine
    keys = [key for key in keys if getattr(settings, key) != getattr(machine, key)]
    if keys:
        _warned.add(config)
        logging.getLogger("rla_client").warning(
            "%s of %s has no effect: one agent serves all projects of a machine; set it in %s, or in the "
            "file that `rla-agent start --config` names",
            ", ".join(f"AGENT.{key}" for key in keys),
            config or "the config dict",
            path,
        )


def _set_keys(settings: AgentConfig, keys: Iterable[str]) -> list[str]:
    default = AgentConfig()
    return [key for key in keys if getattr(settings, key) != getattr(default, key)]
