"""Exit of failed commands.

Exit codes: 0 done · 1 failed, or doctor found something · 2 wrong usage · 3 the agent runs already, or does
not run · 4 the state folder cannot be used · 5 the configuration has faults · 6 a later release wrote the
state. `run` ends with the status of its command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn

import typer

from rla_agent.store.sqlite import NewerFormatError
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import (
    AgentNotRunningError,
    AgentRunningError,
    ConfigError,
    PlaceError,
    RlaError,
)
from rla_client.contract.text.command_line import tell_error

EXIT_FAILED, EXIT_USAGE, EXIT_STATE, EXIT_PLACE, EXIT_CONFIG, EXIT_NEWER = 1, 2, 3, 4, 5, 6


def fail(error: object, code: int = EXIT_FAILED) -> NoReturn:
    """Print the error to stderr and exit."""
    tell_error(error)
    raise typer.Exit(code)


def fail_as(error: RlaError) -> NoReturn:
    """Exit with the code of an error."""
    codes = (
        (ConfigError, EXIT_CONFIG),
        (NewerFormatError, EXIT_NEWER),
        (PlaceError, EXIT_PLACE),
        (AgentNotRunningError, EXIT_STATE),
        (AgentRunningError, EXIT_STATE),
    )
    fail(error, next((code for kind, code in codes if isinstance(error, kind)), EXIT_FAILED))


@contextmanager
def failures(what: str = "", code: int = EXIT_FAILED) -> Iterator[None]:
    """Context in which an error ends the command: ours with its own exit code, an OSError with `code`."""
    try:
        yield
    except RlaError as error:
        fail_as(error)
    except OSError as error:
        fail(f"{what}{error}", code)


def state_folder_failures(places: Places) -> AbstractContextManager[None]:
    """Context in which an OSError ends the command: the state folder cannot be used."""
    return failures(f"cannot use the state folder {places.state}: ", EXIT_PLACE)
