"""Route of a message by one channel, secrets included.

Secrets are read from their file or variable at use, and are in no message of ours: an error names the server,
its answer, or the file.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from rla_client.config.alerts import Channel
from rla_client.contract.text.terminal_text import printable

MAX_SECRET_BYTES = 4096
MAX_ANSWER_BYTES = 1000  # of a server's or command's output, for the error
MAX_SHOWN_CHARS = 200
PORTS = {"starttls": 587, "tls": 465, "none": 25}


class SendError(Exception):
    """A message was not sent.

    Attributes:
        retry_after_s: what the server asks for, None if it does not.
    """

    def __init__(self, text: str, retry_after_s: float | None = None) -> None:
        super().__init__(printable(text))
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Route:
    """A channel with the base of its relative paths.

    Attributes:
        channel: as the configuration has it.
        folder: of the configuration.
        refused: why it is not used, empty when it is.
    """

    channel: Channel
    folder: Path
    refused: str = ""

    def path(self, name: str) -> Path:
        """A file that the channel names."""
        return self.folder / os.path.expanduser(name)


def where_of(route: Route) -> str:
    """The server or kind of a channel, for errors."""
    channel = route.channel
    return f"{channel.server}:{port_of(channel)}" if channel.kind == "email" else channel.kind


def port_of(channel: Channel) -> int:
    """Port of a mail server."""
    return channel.port or PORTS[channel.security]


def secret_of(route: Route, variable: str, file: str) -> str:
    """A secret that a channel names.

    Raises:
        SendError: it is not there, or others can read the file.
    """
    if variable:
        value = os.environ.get(variable, "")
        if not value:
            raise SendError(f"the agent's environment has no {variable}")
        return value
    path = route.path(file)
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            data = opened.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SendError(f"{path}: {error.strerror or error}") from error
    if mode & 0o077:
        raise SendError(f"{path} can be read by others; run: chmod 600 {path}")
    try:
        value = data.decode().strip()
    except UnicodeDecodeError:
        raise SendError(f"{path} is not text") from None
    if not value or len(data) > MAX_SECRET_BYTES or "\n" in value:
        raise SendError(f"{path} must hold one line")
    return value


def tls_context(route: Route) -> ssl.SSLContext:
    """TLS context by a channel's settings."""
    file = route.channel.ca_file
    try:
        return ssl.create_default_context(cafile=str(route.path(file)) if file else None)
    except (OSError, ssl.SSLError) as error:
        raise SendError(f"ca_file {file}: {error.strerror or error}") from error


def reason_of(error: Exception) -> str:
    """An error in words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
