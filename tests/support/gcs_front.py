"""Google Cloud Storage's XML interface before an S3 server: the same requests with other headers.

What differs is done here: an object has a generation, a new one with each write, and conditions name that
(`x-goog-if-generation-match`, 0 for none); metadata and copies have headers of their own. What else GCS does
differently is not known here.
"""

from __future__ import annotations

import http
import itertools
import threading
from pathlib import Path
from urllib.parse import quote, unquote

from support.faulty_store import PRECONDITION, Answer, Proxy, ProxyHandler

SIGNED = (
    "AWS4-HMAC-SHA256 Credential=test-key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature="
)
_TO_S3 = {"x-goog-copy-source": "x-amz-copy-source", "x-goog-metadata-directive": "x-amz-metadata-directive"}


class GcsFront(Proxy):
    """The front. `conditions`: those that were sent, and whether they held; `page`: length of lists."""

    def __init__(self, port: int, page: int = 1000) -> None:
        self.page = page
        self.conditions: list[tuple[str, bool]] = []
        self.generations: dict[str, tuple[str, str]] = {}  # path: generation, etag
        self.numbers = itertools.count(1_700_000_000_000_000)
        self.lock = threading.Lock()
        super().__init__(port, _Handler)


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


class _Handler(ProxyHandler):
    owner: GcsFront

    def _serve(self) -> None:
        body = self._body()
        path = self.path.partition("?")[0]
        if self.command in {"GET", "HEAD"}:
            if "list-type=2" in self.path:
                self.path += f"&max-keys={self.owner.page}"
            status, headers, data = self._pass(body)
        else:
            with self.owner.lock:
                status, headers, data = self._change(path, body)
        with self.owner.lock:
            known = self._known(path, {name.lower(): value for name, value in headers})
        headers = [(name.lower().replace("x-amz-", "x-goog-"), value) for name, value in headers]
        if known and status < http.HTTPStatus.MULTIPLE_CHOICES:
            headers.append(("x-goog-generation", known))
        self._answer(status, headers, data)

    def _known(self, path: str, headers: dict[str, str]) -> str:
        """The generation of an object, whose etag says whether it is still that one."""
        etag = headers.get("etag", "")
        if not etag:
            return ""
        if self.owner.generations.get(path, ("", ""))[1] != etag:
            self.owner.generations[path] = str(next(self.owner.numbers)), etag
        return self.owner.generations[path][0]

    def _change(self, path: str, body: bytes) -> Answer:
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
            self.owner.generations.pop(path, None)  # the same bytes again are another generation
        return found

    def _pass(self, body: bytes) -> Answer:
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

    def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        name, mark, query = path.partition("?")
        path = quote(unquote(name)) + mark + query  # moto looks for a bucket as it is written
        return super()._send(method, path, body, {**headers, "Authorization": SIGNED})
