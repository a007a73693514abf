"""Master that a configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from rla_agent.replicate import registry, target_config
from rla_client.config.schema import Config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.text.command_line import tell_error


@contextmanager
def target_failures() -> Iterator[None]:
    """Context in which a fault of the master or the settings ends the command, with its hint."""
    try:
        yield
    except RlaError as error:
        hint = getattr(error, "hint", "")
        tell_error(f"{error}\nhint: {hint}" if hint else error)
        raise typer.Exit(2) from None


def target_of(config: Config) -> target_config.Target:
    """The target that a configuration names."""
    return target_config.target(config, registry.folder(find_places().state))
