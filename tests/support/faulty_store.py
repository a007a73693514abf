"""A store that fails: an HTTP proxy before an S3 server, which counts requests, and cuts, delays, refuses.

Faults: `cut` (nothing was done), `lost` (done, but the answer is cut), `half request`, `half answer`,
`delay`, `500`, `503` (SlowDown; nothing was done), `late 500` (done, and answered with 500).
Beside them, `unconditional`: conditions are ignored, as s3rver does; `bare etags`: `If-Match` holds for an
etag without its quotes only, as in Ceph 16.2; `plus`: lists write a space as `+`, as AWS and MinIO do.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

FAULTS = ("cut", "lost", "half request", "half answer", "delay", "500", "503", "late 500")
SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>reduce</Message></Error>"
INTERNAL = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>again</Message></Error>"
PRECONDITION = b"<?xml version='1.0'?><Error><Code>PreconditionFailed</Code></Error>"
CONDITIONS = frozenset({"if-none-match", "if-match"})
DELAY_S = 0.3
Answer: TypeAlias = tuple[int, list[tuple[str, str]], bytes]  # status, headers, body


class Proxy:
    """An HTTP server on loopback, in threads of its own, before the one at `port`."""

    def __init__(self, port: int, handler: type[ProxyHandler]) -> None:
        bound = type("Handler", (handler,), {"upstream": port, "owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), bound)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class ProxyHandler(BaseHTTPRequestHandler):
    """Serves one connection; a subclass says in `_serve` what becomes of a request."""

    protocol_version = "HTTP/1.1"
    upstream: int
    owner: Any

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing."""

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _serve(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """What the server behind says."""
        link = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            link.request(method, path, body or None, {**headers, "Content-Length": str(len(body))})
            answer = link.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            link.close()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, part: int | None = None
    ) -> None:
        """`part`: so many bytes of the body, then the connection is cut."""
        self.send_response_only(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data if part is None else data[:part])
        if part is not None:
            self._drop()

    def _drop(self) -> None:
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(2)
        self.close_connection = True


class FaultyStore(Proxy):
    """The proxy. `fault(method, path)` names a fault for a request, or says None.

    Attributes:
        requests: (time, method, path) of each.
        faults: how many of each there were.
    """

    def __init__(self, port: int) -> None:
        self.fault: Callable[[str, str], str | None] = lambda _method, _path: None
        self.requests: list[tuple[float, str, str]] = []
        self.faults: Counter[str] = Counter()
        super().__init__(port, _Handler)

    def often(self, share: float, seed: int = 0, kinds: tuple[str, ...] = FAULTS) -> None:
        """From now on, that share of the requests fails."""
        chance = random.Random(seed)
        self.fault = lambda _method, _path: chance.choice(kinds) if chance.random() < share else None


class _Handler(ProxyHandler):
    owner: FaultyStore

    def _serve(self) -> None:
        body = self._body()
        self.owner.requests.append((time.monotonic(), self.command, self.path))
        fault = self.owner.fault(self.command, self.path)
        if fault is not None:
            self.owner.faults[fault] += 1
        if fault == "cut":
            self._drop()
            return
        if fault in {"500", "503"}:
            self._answer(int(fault), [], SLOW_DOWN if fault == "503" else INTERNAL)
            return
        if fault == "delay":
            time.sleep(DELAY_S)
        if fault == "bare etags" and self.headers.get("If-Match", "").startswith('"'):
            self._answer(412, [], PRECONDITION)
            return
        if fault == "half request":
            self._pass(body[: len(body) // 2])  # a careless server would take it
            self._drop()
            return
        status, headers, data = self._pass(body, CONDITIONS if fault == "unconditional" else frozenset())
        if fault == "lost":
            self._drop()
        elif fault == "late 500":
            self._answer(500, [], INTERNAL)
        elif fault == "half answer":
            self._answer(status, headers, data, part=len(data) // 2)
        else:
            self._answer(status, headers, data.replace(b"%20", b"+") if fault == "plus" else data)

    def _pass(self, body: bytes, without: frozenset[str] = frozenset()) -> Answer:
        dropped = {"connection", "content-length", *without}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
        return self._send(self.command, self.path, body, kept)
