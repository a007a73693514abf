"""Google Cloud Storage's XML interface before an S3 server: the same requests with other headers.

What differs is done here: an object has a generation, a new one with each write, and conditions name that
(`x-goog-if-generation-match`, 0 for none); metadata and copies have headers of their own. What else GCS does
differently is not known here.
"""

from __future__ import annotations

import http
import http.client
import itertools
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=test-key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature="
)
PRECONDITION = b"<?xml version='1.0'?><Error><Code>PreconditionFailed</Code></Error>"
_TO_S3 = {"x-goog-copy-source": "x-amz-copy-source", "x-goog-metadata-directive": "x-amz-metadata-directive"}


class GcsFront:
    """The front. `conditions`: those that were sent, with whether they held."""

    def __init__(self, port: int) -> None:
        self.conditions: list[tuple[str, bool]] = []
        self.generations: dict[str, tuple[str, str]] = {}  # path: generation, etag
        front = self

        class Handler(_Handler):
            upstream = port
            owner = front
            lock = threading.Lock()
            numbers = itertools.count(1_700_000_000_000_000)
            generations = front.generations

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def gcs_remote(front: GcsFront, bucket: str, folder: Path, **more: object) -> dict[str, object]:
    """REMOTE_SETTING for a bucket behind the front; an account that needs no login comes to `folder`."""
    account = folder / "account.json"
    account.write_text('{"disable_oauth": true, "private_key": "", "private_key_id": "", "client_email": ""}')
    account.chmod(0o600)
    return {
        "file_transfer_protocol": "gcs",
        "bucket": bucket,
        "endpoint": front.endpoint,
        "credentials_file": str(account),
        "remote_data_root": "some/prefix",
        **more,
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: int
    owner: GcsFront
    lock: threading.Lock
    numbers: itertools.count[int]
    generations: dict[str, tuple[str, str]]

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing."""

    def handle(self) -> None:
        with suppress(OSError):
            super().handle()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if self.command in {"GET", "HEAD"}:
            status, headers, data = self._pass(body)
        else:
            with self.lock:
                status, headers, data = self._change(path, body)
        with self.lock:
            known = self._known(path, {name.lower(): value for name, value in headers})
        self.send_response_only(status)
        length = str(len(data))
        for name, value in headers:
            if name.lower() == "content-length" and self.command == "HEAD":
                length = value
            elif name.lower() not in {"content-length", "connection", "transfer-encoding"}:
                self.send_header(name.lower().replace("x-amz-", "x-goog-"), value)
        if known and status < http.HTTPStatus.MULTIPLE_CHOICES:
            self.send_header("x-goog-generation", known)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def _known(self, path: str, headers: dict[str, str]) -> str:
        """The generation of an object, whose etag says whether it is still that one."""
        etag = headers.get("etag", "")
        if not etag:
            return ""
        if self.generations.get(path, ("", ""))[1] != etag:
            self.generations[path] = str(next(self.numbers)), etag
        return self.generations[path][0]

    def _change(self, path: str, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None:
            status, headers, _ = self._send("HEAD", path, b"", {})
            there = status == http.HTTPStatus.OK
            now = self._known(path, {name.lower(): value for name, value in headers}) if there else "0"
            held = wanted == now
            self.owner.conditions.append((wanted, held))
            if not held:
                return 412, [], PRECONDITION
        found = self._pass(body)
        if found[0] < http.HTTPStatus.MULTIPLE_CHOICES and "partNumber" not in self.path:
            self.generations.pop(path, None)  # the same bytes again are another generation
        return found

    def _pass(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        kept = {}
        for name, value in self.headers.items():
            low = name.lower()
            if low.startswith("x-goog-meta-"):
                kept[low.replace("x-goog-", "x-amz-")] = value
            elif low in _TO_S3:
                kept[_TO_S3[low]] = value
            elif low not in {"authorization", "connection", "content-length"} and not low.startswith(
                "x-goog-"
            ):
                kept[name] = value
        return self._send(self.command, self.path, body, kept)

    def _send(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        link = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        name, mark, query = path.partition("?")
        path = quote(unquote(name)) + mark + query  # moto looks for a bucket as it is written
        try:
            headers = {**headers, "Authorization": SIGNED, "Content-Length": str(len(body))}
            link.request(method, path, body or None, headers)
            answer = link.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            link.close()
