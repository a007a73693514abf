"""Starting `rla web`: a port, a token, a line that says where, and a browser where there is one."""

from __future__ import annotations

import getpass
import logging
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from rla_client.contract.errors import DatabaseError
from rla_client.web.app import make_app
from rla_client.web.site import Site

FIRST_PORT = 8787
TRIED_PORTS = 50
LOOPBACK = "127.0.0.1"
CLOSE_S = 1  # for answers under way when it ends


def serve(
    roots: Sequence[Path],
    *,
    host: str,
    port: int | None,
    allowed: Sequence[str],
    browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        roots: data roots.
        host: to listen at.
        port: None: the first free one from 8787; 0: any.
        allowed: further names that it may be called by.
        browser: open one where there is a screen.
        say: takes lines for the user.

    Raises:
        DatabaseError: a root is no folder, or the address cannot be had.
    """
    site = Site(roots)
    token = secrets.token_urlsafe(32)
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    names = [host, *allowed]
    address = f"http://{_named(host)}:{bound}/?token={token}"
    for line in _where(address, host, bound):
        say(line)
    config = uvicorn.Config(
        make_app(site, token, tuple(names)),
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = uvicorn.Server(config)
    # answers that Ctrl-C cuts off are no errors
    logging.getLogger("uvicorn.error").addFilter(lambda _: not server.should_exit)
    if browser and _has_screen():
        _open_browser(address)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def _listen(host: str, port: int | None) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        message = f"--host {host}: {error.strerror or error}"
        raise DatabaseError(message) from error
    tries = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + TRIED_PORTS), 0]
    for place, one in enumerate(tries):
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address[0], one, *address[2:]))
            listener.listen(128)
            listener.set_inheritable(False)
        except (OSError, OverflowError) as error:
            listener.close()
            if place == len(tries) - 1:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                message = f"cannot listen at {host}:{one}: {reason}\nhint: --port 0 takes any that is free"
                raise DatabaseError(message) from error
        else:
            return listener
    raise AssertionError(tries)


def _named(host: str) -> str:
    """A host as it stands in an address."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - asked for by the user
        host = socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _where(address: str, host: str, port: int) -> list[str]:
    lines = [f"rla web: {address}"]
    if host not in {LOOPBACK, "localhost", "::1"}:
        lines.append(
            "whoever reaches this machine and has the address can read these databases; nothing is encrypted"
        )
    elif not _has_screen():
        whom = f"{_user()}@{socket.gethostname()}"
        lines.append(
            f"from another machine: ssh -L {port}:127.0.0.1:{port} {whom}   and open that address there"
        )
    return [*lines, "Ctrl-C ends it"]


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def _has_screen() -> bool:
    """Whether a browser that is opened here would be seen."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open_browser(address: str) -> None:
    """A graphical one; a text browser would take this terminal."""
    with suppress(webbrowser.Error, OSError):
        found = webbrowser.get()
        if not isinstance(found, webbrowser.GenericBrowser) or isinstance(
            found, webbrowser.BackgroundBrowser
        ):
            found.open(address)
