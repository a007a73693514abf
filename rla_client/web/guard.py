"""Access guard of the server.

Whoever has the token can read everything in the databases that the server's user can read. Therefore:

- **Token.** 256 random bits, new at each start. `/` and `/static/` accept it in the query or as a cookie that
  is derived from it (so that a reload works). The cookie opens nothing else: cookies do not distinguish the
  ports of a host, and other users' servers may listen there. `/api/` accepts the token in the header
  `Authorization: Bearer` or, for pictures and downloads, in the query.
- **Host** must be an address, `localhost`, this machine's name, or an allowed name. Another name that
  resolves to this server (DNS rebinding) is refused.
- **Origin**, where a browser sends one, must be this server's. A POST needs a JSON body and the token in its
  header.
- **Content-Security-Policy** allows only this server's own files. Files of a run are sent so that no browser
  executes them (`file_download.FOREIGN`). Pages that a run stored are shown in `sandbox.html`, which
  `SANDBOXED` gives an origin of its own and no right to load anything.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


COOKIE = "rla-web"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SANDBOXED = {  # headers of the frame that pages of runs are shown in
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob: data:; "
        "style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:; "
        "worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Frame-Options": "SAMEORIGIN",
    "X-DNS-Prefetch-Control": "off",
}
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


class Guard:
    """ASGI middleware that refuses requests by the rules above; `hosts` are further names of this machine."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token.encode()
        self._cookie = hmac.new(self._token, COOKIE.encode(), hashlib.sha256).hexdigest()
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
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
        """The refusal of a request (None: it is accepted), and whether to set the cookie."""
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
        """Whether a request has the cookie. SimpleCookie would take minutes for a header full of escapes."""
        own = self._name(request)
        for header in request.headers.getlist("cookie"):
            for one in header.split(";"):
                name, _, value = one.strip().partition("=")
                if name == own and hmac.compare_digest(value.encode(), self._cookie.encode()):
                    return True
        return False

    @staticmethod
    def _name(request: Request) -> str:
        """Name of the cookie; it has the port, so that two servers on one host keep theirs apart."""
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
    """`receive` that ends a request with a body above `MAX_BODY_BYTES`."""
    seen = 0

    async def take() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY_BYTES:
            return {"type": "http.disconnect"}
        return message

    return take
