"""Libraries that a plain install leaves out: a missing one is an error that says what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rla_client.contract.errors import MissingExtraError

_CALLED = {"google": "protobuf", "torch": "PyTorch"}  # a module's name, where nobody knows it by that


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Goes around imports of what an extra installs.

    Args:
        name: of the extra in pyproject.toml.
        what: needs it, as the user calls it: "rla export".

    Raises:
        MissingExtraError: a module is not installed; the message names it and the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        needed = _CALLED.get(error.name or "", error.name)
        message = f"{what} needs {needed}: pip install 'rla-agent[{name}]'"
        raise MissingExtraError(message, name=error.name) from error
