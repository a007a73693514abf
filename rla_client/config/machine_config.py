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
"""Of `AGENT`: each run has its own where its project says so; else the machine's."""
MACHINE_KEYS = ("commit_interval_s", "idle_exit_s", "open_files_max")
"""Of `AGENT`: one agent has one value for all projects, see `machine_config_path`."""
_told: set[str | None] = set()  # configurations of which a warning was given


def machine_config_path() -> Path:
    """The user's file for this machine's agent, in the form of an `rla_config.yaml`.

    Of its section AGENT, RUN_KEYS and MACHINE_KEYS count.
    """
    import platformdirs  # noqa: PLC0415 - not at import of the package

    try:
        return platformdirs.user_config_path("rla-agent") / "agent.yaml"
    except RuntimeError:
        return user_home() / ".config" / "rla-agent" / "agent.yaml"


def settings_of_run(settings: AgentConfig) -> dict[str, Any]:
    """What a run has of its own, for its opening frame: the RUN_KEYS that its project sets."""
    return {key: getattr(settings, key) for key in _set_keys(settings, RUN_KEYS)}


def warn_of_machine_keys(settings: AgentConfig, config: str | None) -> None:
    """Say once what a project sets that is its machine's, and where that counts.

    Args:
        settings: of the project.
        config: its file, None for a dict.
    """
    keys = _set_keys(settings, MACHINE_KEYS)
    if not keys or config in _told:
        return
    path, machine = machine_config_path(), AgentConfig()
    with suppress(ConfigError):
        machine = load_config(path).agent if path.exists() else machine
    keys = [key for key in keys if getattr(settings, key) != getattr(machine, key)]
    if keys:
        _told.add(config)
        logging.getLogger("rla_client").warning(
            "%s of %s: one agent serves all projects of a machine, so this counts only in %s, or in the file "
            "that `rla-agent start --config` names",
            ", ".join(f"AGENT.{key}" for key in keys),
            config or "the config dict",
            path,
        )


def _set_keys(settings: AgentConfig, keys: Iterable[str]) -> list[str]:
    usual = AgentConfig()
    return [key for key in keys if getattr(settings, key) != getattr(usual, key)]
