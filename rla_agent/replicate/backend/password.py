"""Password of a master, from the settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rla_agent.replicate.backend.errors import BlockedError

if TYPE_CHECKING:
    from rla_client.config.schema import RemoteSetting


MAX_CREDENTIALS_BYTES: Final = 64 << 10


def read_password(remote: RemoteSetting) -> str:
    """The password that the settings give or point to; empty when they give none.

    Raises:
        BlockedError: the variable or file that they name is not there.
    """
    if remote.password_env:
        value = os.environ.get(remote.password_env)
        if value is None:
            what = f"the environment variable {remote.password_env} is not set"
            hint = (
                f"export {remote.password_env}, then: rla-agent restart (a unit: EnvironmentFile=); "
                "or use credentials_file"
            )
            raise BlockedError("log in", b"", what, hint)
        return value
    if remote.credentials_file:
        return _credentials(Path(os.path.expanduser(remote.credentials_file)), remote.ftp_server)
    return remote.password


def _credentials(path: Path, server: str) -> str:
    """The file holds the password alone, or lines `server: password`; nobody else may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(MAX_CREDENTIALS_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        what = f"credentials_file {path} cannot be read"
        raise BlockedError("log in", b"", what, "check the name and its permissions") from error
    if mode & 0o077:
        raise BlockedError("log in", b"", f"{path} is open to other users", f"run: chmod 600 {path}")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.strip() == server:
            return value.strip()
    if len(lines) == 1:
        return lines[0]
    raise BlockedError("log in", b"", f"{path} has no line for {server}", f"add a line `{server}: password`")
