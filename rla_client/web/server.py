"""Server of `rla web`."""

from __future__ import annotations

import logging
import os
import resource
import secrets
import socket
import tempfile
import threading
import warnings
import webbrowser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import h11
import uvicorn

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import TIME_STEP
from rla_client.contract.process.account import user_name
from rla_client.contract.process.screen import has_screen
from rla_client.web.curve_columns import read_entries
from rla_client.web.routes import make_app
from rla_client.web.run_registry import Site

FIRST_PORT = 8787
TRIED_PORTS = 50
READ_AHEAD = 200  # runs
LOOPBACK = "127.0.0.1"
CLOSE_S = 1  # for unfinished answers when the server stops


def serve(  # noqa: PLR0913 - the options of `rla web`, all but one by name
    roots: Sequence[Path],
    *,
    host: str,
    port: int | None,
    allowed: Sequence[str],
    browser: bool,
    link: str = "",
    say: Callable[[str], None],
) -> None:
    """Serve the page until Ctrl-C.

    Args:
        roots: data roots.
        host: address to listen at.
        port: None: the first free port from 8787; 0: any free port.
        allowed: further host names that requests may use.
        browser: open a browser if there is a screen.
        link: the part of the page to open, such as `#/run/…`; empty: the list of runs.
        say: gets lines for the user.

    Raises:
        DatabaseError: a root is not a folder, or the server cannot listen at the address.
    """
    _quiet()
    site = Site(roots)
    token = secrets.token_urlsafe(32)
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    address = f"http://{_named(host)}:{bound}/?token={token}{link}"
    for line in _where(address, host, bound):
        say(line)
    config = uvicorn.Config(
        make_app(site, token, (host, *allowed)),
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        http="h11",  # refuses malformed requests such as two Host headers; uvicorn would prefer httptools
        ws="none",
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not (server.should_exit or _cut_off(record))  # Ctrl-C, a file that shrank
    )
    site.read_ahead.clear()
    threading.Thread(target=_read_ahead, args=(site,), daemon=True).start()
    with suppress(KeyboardInterrupt), _opened(address, wanted=browser):
        server.run(sockets=[listener])


def _read_ahead(site: Site) -> None:
    """Read what the page shows first, the list and likely curves, while the browser starts."""
    try:
        with suppress(DatabaseError, OSError):  # the page reports them
            site.look(wait=True)
            newest = sorted(site.entries(), key=lambda entry: entry.record.opened)[-READ_AHEAD:]
            likely = Counter(entry.record.likely for entry in newest if entry.record.likely).most_common(1)
            read_entries(site, newest, [TIME_STEP, *(name for name, _ in likely)])
    finally:
        site.read_ahead.set()


def _quiet() -> None:
    """Suppress irrelevant messages, and raise the limit of connections as far as the system allows.

    Clients that disconnect and arithmetic with NaN are irrelevant to the user. With a higher limit, clients
    without the token need longer to exhaust the connections.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", RuntimeWarning)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(host: str, port: int | None) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise DatabaseError(f"--host {host}: {error.strerror or error}") from error
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
                raise DatabaseError(
                    f"cannot listen at {host}:{one}: {reason}\nhint: --port 0 takes any that is free"
                ) from error
        else:
            return listener
    raise AssertionError(tries)


def _named(host: str) -> str:
    """A host as part of a URL."""
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104 - asked for by the user
        host = socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _where(address: str, host: str, port: int) -> list[str]:
    lines = [f"rla web: {address}"]
    if host not in {LOOPBACK, "localhost", "::1"}:
        lines.append(
            "whoever reaches this machine and has the address can read these databases; nothing is encrypted"
        )
    elif not has_screen():
        whom = f"{user_name() or os.getuid()}@{socket.gethostname()}"
        lines.append(
            f"from another machine: ssh -L {port}:127.0.0.1:{port} {whom}   and open that address there"
        )
    return [*lines, "Ctrl-C ends it"]


def _cut_off(record: logging.LogRecord) -> bool:
    """Whether a log record is about an answer that ended early because its file was truncated."""
    return bool(record.exc_info) and isinstance((record.exc_info or (None, None))[1], h11.LocalProtocolError)


@contextmanager
def _opened(address: str, *, wanted: bool) -> Iterator[None]:
    """Open a graphical browser; a text browser would take over this terminal.

    The browser gets a file that only this user can read, since its arguments, which would contain the token,
    are visible to other users.
    """
    if not wanted or not has_screen():
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="rla-web-", suffix=".html") as page:
        page.write(f'<meta http-equiv="refresh" content="0; url={address}">')
        page.flush()
        with suppress(webbrowser.Error, OSError):
            found = webbrowser.get()
            of_terminal = isinstance(found, webbrowser.GenericBrowser)
            if not of_terminal or isinstance(found, webbrowser.BackgroundBrowser):
                found.open(Path(page.name).as_uri())
        yield
