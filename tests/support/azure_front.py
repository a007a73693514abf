"""Azure Blob Storage before an S3 server: lists, and one blob at a time, for who has the account's key.

Lists are Azure's XML, in pages whose length a test chooses. A blob's requests are S3's with other headers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

from support.bucket_lab import S3Server
from support.faulty_store import Answer, Proxy, ProxyHandler
from support.gcs_front import SIGNED

ACCOUNT = "lab"
KEY = "c2VjcmV0"
ENVIRONMENT = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY}
_SIGNED = [
    "Content-Encoding",
    "Content-Language",
    "Content-Length",
    "Content-MD5",
    "Content-Type",
    "Date",
    "If-Modified-Since",
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "Range",
]


class AzureFront(Proxy):
    """The front; an account's address. `refused`: paths of requests with a wrong signature."""

    def __init__(self, server: S3Server, page: int = 5000) -> None:
        self.client = server.client()
        self.page = page
        self.refused: list[str] = []
        super().__init__(server.port, _Handler)


class _Handler(ProxyHandler):
    owner: AzureFront

    def _serve(self) -> None:
        body = self._body()
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        if self.headers.get("Authorization") != f"SharedKey {ACCOUNT}:{self._signature(url.path, query)}":
            self.owner.refused.append(self.path)
            self._answer(403, [], b"<Error><Code>AuthenticationFailed</Code></Error>")
        elif query.get("comp") == "list":
            self._answer(*self._list(url.path.strip("/"), query))
        else:
            self._answer(*self._blob(body))

    def _signature(self, path: str, query: dict[str, str]) -> str:
        given = {name.lower(): value for name, value in self.headers.items()}
        lines = [self.command, *(given.get(name.lower(), "") for name in _SIGNED)]
        if lines[3] == "0":
            lines[3] = ""
        if "x-ms-date" in given:
            lines[6] = ""
        lines += [f"{name}:{given[name]}" for name in sorted(given) if name.startswith("x-ms-")]
        lines += [f"/{ACCOUNT}{path}", *(f"{name}:{query[name]}" for name in sorted(query))]
        digest = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        return base64.b64encode(digest).decode()

    def _list(self, container: str, query: dict[str, str]) -> Answer:
        asked = {"Prefix": query.get("prefix", ""), "Delimiter": query.get("delimiter", "")}
        more = {"ContinuationToken": query["marker"]} if query.get("marker") else {}
        found = self.owner.client.list_objects_v2(
            Bucket=container,
            MaxKeys=self.owner.page,
            StartAfter=query.get("startFrom", ""),
            **{name: value for name, value in asked.items() if value},
            **more,
        )
        blobs = [
            f"<Blob>{_written(one['Key'])}<Properties>"
            f"<Last-Modified>{one['LastModified']:%a, %d %b %Y %H:%M:%S} GMT</Last-Modified>"
            f"<Etag>{escape(one['ETag'])}</Etag><Content-Length>{one['Size']}</Content-Length>"
            "<Content-Type>x/y</Content-Type><BlobType>BlockBlob</BlobType></Properties></Blob>"
            for one in found.get("Contents", ())
        ]
        blobs += [
            f"<BlobPrefix>{_written(one['Prefix'])}</BlobPrefix>" for one in found.get("CommonPrefixes", ())
        ]
        text = (
            f'<?xml version="1.0" encoding="utf-8"?><EnumerationResults ContainerName="{container}">'
            f"<Blobs>{''.join(blobs)}</Blobs>"
            f"<NextMarker>{found.get('NextContinuationToken', '')}</NextMarker></EnumerationResults>"
        )
        return 200, [("Content-Type", "application/xml")], text.encode()

    def _blob(self, body: bytes) -> Answer:
        kept = {
            name.lower().replace("x-ms-", "x-amz-"): value
            for name, value in self.headers.items()
            if name.lower().startswith(("x-ms-meta-", "if-", "range", "content-type"))
        }
        kept = {name: value for name, value in kept.items() if value}
        status, headers, data = self._send(
            self.command, self.path.partition("?")[0], body, {**kept, "Authorization": SIGNED}
        )
        if self.command == "PUT" and status == http.HTTPStatus.OK:
            status = http.HTTPStatus.CREATED
        return status, [(name.lower().replace("x-amz-", "x-ms-"), value) for name, value in headers], data


def _written(name: str) -> str:
    """A name in a list; one that XML cannot have is escaped, as an attribute says."""
    if any(ord(char) < 32 for char in name):
        return f'<Name Encoded="true">{quote(name)}</Name>'
    return f"<Name>{escape(name)}</Name>"
