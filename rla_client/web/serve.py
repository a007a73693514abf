"""The server of `rla web`: started, its answers put together, and nobody let in without the token.

Each answer is a function of (site, request's body or query) in the module whose job it is; here stands which
path leads to it. What is the user's to fix is answered with 400 and the error's words, `{"error": …}`.
Answers run in threads, but for the stream of what is new.

**Who is let in.** Whoever has the token may read all that the server's user may read of the databases, so:

- **Token.** 256 random bits, new at each start. `/` and `/static/` take it from the query or from a cookie
  that is derived from it (so that a reload works) and that opens nothing else: cookies do not tell the
  ports of a host apart, and other people's servers may listen there. `/api/` takes it from the header
  `Authorization: Bearer` or, for pictures and downloads, from the query.
- **Host** is an address, `localhost`, this machine's name, or one that was allowed: a name of somebody else
  that resolves to us (DNS rebinding) is refused.
- **Origin**, where a browser sends one, is ours. A POST needs a JSON body and the token in its header.
- **Content-Security-Policy** allows this server's own files alone; what a run wrote is sent so that no
  browser runs it (`files.FOREIGN`).

How this machine's agent stands, and all machines of the fleet, is told as `rla-agent status` does. The agent
package is asked by a process of its own, one at a time, and only while somebody looks. A machine that is the
master has the fleet's status files itself, in `.rla-fleet/` of a data root; elsewhere they come from the
master, over the network.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import os
import re
import resource
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import webbrowser
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from rla_client.contract.errors import ArgumentError, DatabaseError, RlaError
from rla_client.contract.layout import TIME_STEP
from rla_client.contract.process.account import user_name
from rla_client.database.records.fleet import described, fleet_files, told_apart
from rla_client.database.views import read_views
from rla_client.web import STATIC, curves, files, runs
from rla_client.web.site import Site, read_entries, sent, stream

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

FIRST_PORT = 8787
TRIED_PORTS = 50
READ_AHEAD = 200  # runs
LOOPBACK = "127.0.0.1"
CLOSE_S = 1  # for answers under way when it ends
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
WAITING = frozenset({"status", "fleet", "trash"})  # they wait for a process; the others do not wait for them
HEAVY = frozenset({"curves", "csv", "parallel", "scatter"})  # one at a time, for the memory of the largest
LONG = frozenset({"difference", "search", "files", "media", "environment"})  # seconds, where there is much
THREADS = 4  # answers at once; more would only wait for each other, each with memory of its own
COOKIE = "rla-web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FRESH_S = 2.0  # an answer is given again for so long
FLEET_FRESH_S = 60.0  # the master's, unless somebody asks for it now
FLEET_AGAIN_S = 5.0
STATUS_TIMEOUT_S = 15.0
FLEET_TIMEOUT_S = 60.0
MAX_ERROR = 2000  # characters of what a command said
MAX_BODY_BYTES = 8 << 20  # 100,000 run numbers with room to spare
_ALWAYS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OLD_TOKEN = "the token is missing or wrong: open the whole address that `rla web` printed last"  # noqa: S105
_LOCKED = (
    "rla web: this address needs its token.\n"
    "Open the whole address that `rla web` printed (http://…/?token=…).\n"
)
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.%]*\]|[^:\[\]/?#@\s]+)(:(?P<port>\d{1,5}))?", re.IGNORECASE)
Answer = Callable[[Site, dict[str, Any]], Any]  # of a POST's body; what goes out as JSON, or a Response
OF_A_RUN: dict[str, Answer] = {
    "run": runs.overview,
    "environment": runs.environment,
    "others": runs.others,
    "difference": runs.difference,
    "note": runs.note,
    "trash": runs.trash,
    "restore": runs.restore,
    "files": files.listing,
    "text": files.text,
    "search": files.search,
    "media": files.media,
    "checkpoints": files.checkpoints,
    "system": files.system,
}


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
        DatabaseError: a root is not a folder, or the address cannot be had.
    """
    _quiet()
    site = Site(roots)
    token = secrets.token_urlsafe(32)
    listener = _listen(host, port)
    bound = listener.getsockname()[1]
    address = f"http://{_named(host)}:{bound}/?token={token}"
    for line in _where(address, host, bound):
        say(line)
    config = uvicorn.Config(
        make_app(site, token, (host, *allowed)),
        log_level="error",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=CLOSE_S,
    )
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: not (server.should_exit or _cut_off(record))  # no errors: Ctrl-C, a file that shrank
    )
    site.read_ahead.clear()
    threading.Thread(target=_read_ahead, args=(site,), daemon=True).start()
    with suppress(KeyboardInterrupt), _opened(address, wanted=browser):
        server.run(sockets=[listener])


def _read_ahead(site: Site) -> None:
    """Read what the page shows first while the browser starts: the list, the newest runs' likely curves."""
    try:
        with suppress(DatabaseError, OSError):  # the page tells
            site.look(wait=True)
            newest = sorted(site.entries(), key=lambda entry: entry.record.opened)[-READ_AHEAD:]
            likely = Counter(entry.record.likely for entry in newest if entry.record.likely).most_common(1)
            read_entries(site, newest, [TIME_STEP, *(name for name, _ in likely)])
    finally:
        site.read_ahead.set()


def _quiet() -> None:
    """Leave the terminal to what the user has to know; take as many connections as the system lets us have.

    Clients that break off, and arithmetic with NaN, are nothing to know. Without the token it takes longer
    to use up more connections.
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
        whom = f"{user_name() or os.getuid()}@{socket.gethostname()}"
        lines.append(
            f"from another machine: ssh -L {port}:127.0.0.1:{port} {whom}   and open that address there"
        )
    return [*lines, "Ctrl-C ends it"]


def _has_screen() -> bool:
    """Whether a browser that is opened here would be seen."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _cut_off(record: logging.LogRecord) -> bool:
    """Whether a line is about an answer that ended early, because its file did."""
    return bool(record.exc_info) and isinstance((record.exc_info or (None, None))[1], h11.LocalProtocolError)


@contextmanager
def _opened(address: str, *, wanted: bool) -> Iterator[None]:
    """Open a graphical browser; a text browser would take this terminal.

    It is given a file that only this user can read: other users see the arguments of its process, and with
    them the token.
    """
    if not wanted or not _has_screen():
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


# -- the answers -------------------------------------------------------------------------------------


def make_app(site: Site, token: str, hosts: tuple[str, ...] = ()) -> ASGIApp:
    """The page over some databases, as an ASGI application; `token` lets in, `hosts` as in `Guard`."""
    quick, waiting, heavy, long = (CapacityLimiter(count) for count in (THREADS, THREADS, 1, 2))
    kinds = ((WAITING, waiting), (HEAVY, heavy), (LONG, long))
    limiters = {name: limiter for names, limiter in kinds for name in names}
    machine = Machine()
    posts: dict[str, Answer] = {
        "runs": lambda site, body: runs.rows(site, _whole(body, "since")),
        "columns": lambda site, body: runs.column_values(
            site, body.get("names"), body.get("numbers"), body.get("group")
        ),
        "fitting": lambda site, body: runs.fitting(site, body.get("where")),
        "differing": lambda site, body: runs.differing(site, body.get("numbers")),
        "names": lambda site, _: runs.names(site),
        "curves": curves.curves,
        "csv": curves.as_csv,
        "command": curves.command,
        "live": stream,
        "metrics": lambda site, body: runs.metric_names(site.chosen(body.get("numbers"))),
        "importance": runs.importance,
        "parallel": runs.parallel,
        "scatter": runs.scatter,
        "views": lambda site, _: read_views(site.databases[0].data_root),
        "view": runs.view,
        **OF_A_RUN,
        "status": lambda site, _: machine.status(site),
        "fleet": machine.fleet,
    }
    own_files = _own_files()
    routes = [
        Route("/", own_files),
        Route("/static/{name:path}", own_files),
        Route("/api/file", _sending(site, quick), methods=["GET"]),
        *(
            Route(f"/api/{name}", _answering(site, answer, limiters.get(name, quick)), methods=["POST"])
            for name, answer in posts.items()
        ),
    ]
    return Guard(Starlette(routes=routes), token, hosts)


def _own_files() -> Callable[[Request], Awaitable[Response]]:
    """The page's own files, from memory: they are asked for while the threads read databases."""
    names = [path for path in STATIC.rglob("*") if path.is_file()]
    bodies = {path.relative_to(STATIC).as_posix(): path.read_bytes() for path in names}
    tags = {name: f'"{hashlib.sha256(body).hexdigest()[:32]}"' for name, body in bodies.items()}

    async def endpoint(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in bodies:
            return PlainTextResponse("not found\n", 404)
        headers = {"ETag": tags[name], "Cache-Control": "no-cache"}  # kept, but to be asked about
        if request.headers.get("if-none-match") == tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(bodies[name], media_type=TYPES.get(Path(name).suffix, "text/plain"), headers=headers)

    return endpoint


def _answering(
    site: Site, answer: Answer, limiter: CapacityLimiter
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            body = json.loads(await request.body() or b"{}")
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the body is not JSON"}, 400)
        except ClientDisconnect:  # or a body that is larger than `Guard` lets through
            return JSONResponse({"error": "the body is not whole"}, 413)
        if not isinstance(body, dict):
            return JSONResponse({"error": "the body is not a JSON object"}, 400)
        async with limiter:
            if await request.is_disconnected():  # as while a page zooms faster than it is answered
                return Response(status_code=499)
            return await run_sync(_guarded, answer, site, body)

    return endpoint


def _sending(site: Site, limiter: CapacityLimiter) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        names = ("range", "if-none-match")
        asked = {**request.query_params, **{name: request.headers.get(name) for name in names}}
        return await run_sync(_guarded, files.send, site, asked, limiter=limiter)

    return endpoint


def _guarded(answer: Answer, site: Site, asked: dict[str, Any]) -> Response:
    """An answer as a response; an error as one that says what to do."""
    try:
        found = answer(site, asked)
    except Exception as error:  # noqa: BLE001 - one answer that fails is no end of the page; it is told, in whole
        text, status = _told(error)
        return JSONResponse({"error": text}, status)
    if isinstance(found, Response):
        return found
    return Response(
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"),
        media_type="application/json",
    )


def _told(error: Exception) -> tuple[str, int]:
    """What an error says to the user, and its status."""
    if isinstance(error, RlaError):
        return str(error), 400
    if isinstance(error, OverflowError | RecursionError):
        return "a number is too large, or something is nested too deeply", 400
    if isinstance(error, FileNotFoundError):
        return f"not there any more: {error.filename or error}", 404
    if isinstance(error, OSError):
        return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else ""), 500
    traceback.print_exception(error, file=sys.stderr)
    return f"a fault of rla web itself: {type(error).__name__}: {error}", 500


def _whole(body: dict[str, Any], name: str) -> int:
    value = body.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ArgumentError(f"{name} must be a whole number")
    return value


# -- this machine and the fleet ----------------------------------------------------------------------


class Machine:
    """What the agent here and the masters said last. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._agent = _Asked(["status", "--json"], STATUS_TIMEOUT_S)
        self._fleet = _Asked(["status", "--fleet", "--json"], FLEET_TIMEOUT_S)

    def status(self, site: Site) -> dict[str, Any]:
        """`status`, as of `rla-agent status --json`, or an `error` that says what to do."""
        return {**self._agent.answer(FRESH_S), "databases": [str(one.data_root) for one in site.databases]}

    def fleet(self, site: Site, asked: dict[str, Any]) -> dict[str, Any]:
        """Machines known on this one, where it is their master.

        And those that masters know, if `network` is asked for; `now`: though they were asked a moment ago.
        """
        roots = [database.data_root for database in site.databases]
        machines = [_machine(one, str(root)) for root in roots for one in fleet_files(root)]
        found: dict[str, Any] = {"machines": machines}
        if asked.get("network") is True:
            answer = self._fleet.answer(FLEET_AGAIN_S if asked.get("now") is True else FLEET_FRESH_S)
            masters = answer.get("status")
            age_s = time.monotonic() - self._fleet.moment
            for target, listed in masters.items() if isinstance(masters, dict) else ():
                of_master = told_apart([described(one) for one in listed if isinstance(one, dict)])
                machines += [_machine(one, str(target), age_s) for one in of_master]
            found |= {"error": answer.get("error"), "age_s": age_s}
        return found


class _Asked:
    """A command of the agent package and its last answer."""

    def __init__(self, words: list[str], timeout_s: float) -> None:
        self._words = words
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._last: dict[str, Any] = {}
        self.moment = -1e9  # of the last answer, on the steady clock

    def answer(self, fresh_s: float) -> dict[str, Any]:
        """The last answer, or a new one where that is older; while another thread asks, the last one."""
        if not self._lock.acquire(blocking=not self._last):
            return self._last
        try:
            if time.monotonic() - self.moment > fresh_s:
                self._last = _ask(self._words, self._timeout_s)
                self.moment = time.monotonic()
            return self._last
        finally:
            self._lock.release()


def _ask(words: list[str], timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "rla_agent", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"rla-agent {' '.join(words)} did not answer within {timeout_s:.0f} s"}
    except OSError as error:
        return {"error": f"rla-agent cannot be started: {error.strerror or error}"}
    with suppress(ValueError):
        found = json.loads(done.stdout)
        if isinstance(found, dict):
            return {"status": sent(found)}
    said = done.stderr.decode("utf-8", "replace").strip() or f"it ended with code {done.returncode}"
    if "No module named" in said:
        said = "the agent's package is not installed beside this one: pip install rla-agent"
    return {"error": said[-MAX_ERROR:]}


def _machine(machine: dict[str, Any], master: str, older_s: float = 0.0) -> dict[str, Any]:
    """A machine as the page shows it."""
    shown = {**machine, "master": master, "age_s": machine["age_s"] + older_s}
    return shown | {name: sent(machine[name]) for name in ("backlog", "runs")}


# -- who is let in -----------------------------------------------------------------------------------


class Guard:
    """ASGI middleware that refuses what the module's text says; `hosts` are further names of this machine."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token.encode()
        self._cookie = hmac.new(self._token, COOKIE.encode(), hashlib.sha256).hexdigest()
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with a refusal."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a WebSocket: uvicorn refuses it
        request = Request(scope)
        refusal, welcome = self._look(request)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                there = {name.lower() for name, _ in headers}
                headers += [
                    (name.lower().encode(), value.encode())
                    for name, value in _ALWAYS.items()
                    if name.lower().encode() not in there
                ]
                if welcome:
                    cookie = f"{self._name(request)}={self._cookie}; Path=/; HttpOnly; SameSite=Strict"
                    headers.append((b"set-cookie", cookie.encode()))
            await send(message)

        if refusal is not None:
            await refusal(scope, receive, with_headers)
        else:
            await self._app(scope, _bounded(receive), with_headers)

    def _look(self, request: Request) -> tuple[Response | None, bool]:
        """A refusal, if the request deserves one; and whether the cookie is to be given."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        refusal = None
        if not self._known(host):
            refusal = PlainTextResponse(f"rla web: not known as {host[:80]!r}; see --allow-host\n", 403)
        elif origin is not None and origin != f"http://{host}":
            refusal = PlainTextResponse("rla web: requests from other pages are refused\n", 403)
        elif request.method not in {"GET", "HEAD", "POST"}:
            refusal = PlainTextResponse("method not allowed\n", 405)
        if refusal is not None:
            return refusal, False
        return self._without_token(request)

    def _without_token(self, request: Request) -> tuple[Response | None, bool]:
        api = request.scope["path"].startswith("/api/")
        by_query = self._is_token(request.query_params.get("token", ""))
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        by_header = scheme.lower() == "bearer" and self._is_token(bearer)
        if request.method == "POST":
            json = request.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
            said = "the body must be JSON" if by_header else _OLD_TOKEN
            return (None if by_header and json else JSONResponse({"error": said}, 403)), False
        if by_header or by_query or (not api and self._has_cookie(request)):
            return None, by_query and not api
        if api:
            return JSONResponse({"error": _OLD_TOKEN}, 403), False
        return PlainTextResponse(_LOCKED, 403), False

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _has_cookie(self, request: Request) -> bool:
        """By splitting: SimpleCookie takes minutes over a header of escapes."""
        own = self._name(request)
        for header in request.headers.getlist("cookie"):
            for one in header.split(";"):
                name, _, value = one.strip().partition("=")
                if name == own and hmac.compare_digest(value.encode(), self._cookie.encode()):
                    return True
        return False

    @staticmethod
    def _name(request: Request) -> str:
        """Of the cookie, so that two pages on one host do not take it from each other."""
        found = _HOST.fullmatch(request.headers.get("host", ""))
        return f"{COOKIE}-{(found and found['port']) or 80}"

    def _known(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        name = found["name"].strip("[]") if found else host
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _bounded(receive: Receive) -> Receive:
    """`receive` that ends a request whose body is larger than anybody needs."""
    seen = 0

    async def take() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY_BYTES:
            return {"type": "http.disconnect"}
        return message

    return take
