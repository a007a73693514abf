"""Filtered listing of a bucket on GCS or Azure.

Where a page of a list has a key that the library `obstore` cannot name, the library returns nothing of that
page, and it cannot sign a list request for other code. So it is given a second address for the same bucket, a
proxy on loopback for one list: requests to it are forwarded to the store unchanged, with the library's own
credentials, and the unnameable keys are removed from the answer. Paging, retries and errors remain the
library's. Neither provider's signature covers the host.
"""

from __future__ import annotations

import json
import os
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MAX_PAGE_BYTES: Final = 64 << 20  # 5,000 keys of 1,024 bytes, escaped, with their properties
ANSWER_S: Final = 25.0
_LOOPBACK: Final = "127.0.0.1"
_PROXIES: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
_NO_PROXIES: Final = ("no_proxy", "NO_PROXY")
_GOOGLE: Final = "https://storage.googleapis.com"
_ODD: Final = re.compile(r"(^|/)(\.{0,2})(/|$)|[\x00-\x1f\x7f]")
_ENTRIES: Final = {"Contents": "Key", "CommonPrefixes": "Prefix", "Blob": "Name", "BlobPrefix": "Name"}
_PRIVATE: Final = 0xF700  # stands for a control character, which XML cannot have, while the list is parsed
_REFERENCE: Final = re.compile(rb"&#(?:x0*([0-9a-fA-F]{1,2})|0*([0-9]{1,2}));")
_CONTROLS: Final = frozenset(range(32)) - {9, 10, 13}
_HOP: Final = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "keep-alive"}


class UnfilteredError(Exception):
    """The bucket cannot be listed in this way; the text says why."""


def is_odd(key: str) -> bool:
    """Whether the library cannot name a key, which is without the final `/` of a folder's object."""
    return _ODD.search(key) is not None


@contextmanager
def filtered(store: ObjectStore, odd: Callable[[str], None]) -> Iterator[ObjectStore]:
    """The same bucket, for lists, for the time of a block.

    Args:
        store: of GCS or Azure.
        odd: called with each key that is left out.

    Raises:
        UnfilteredError: the store is of another kind, or loopback would be reached through an HTTP proxy.
    """
    url = urlsplit(_address_of(store))
    if _passes_a_proxy():
        raise UnfilteredError("a proxy for HTTP is set also for this machine itself: set no_proxy=127.0.0.1")
    handler = type(
        "Handler", (_Handler,), {"upstream": f"{url.scheme}://{url.netloc}", "odd": staticmethod(odd)}
    )
    with ThreadingHTTPServer((_LOOPBACK, 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="bucket-list", daemon=True)
        thread.start()
        try:
            yield _twin(
                store, f"http://{_LOOPBACK}:{server.server_address[1]}{url.path}"
            )  # the path is signed
        finally:
            server.shutdown()
            thread.join()


def _passes_a_proxy() -> bool:
    """Whether the library might send what is for loopback to a proxy, and its credentials with it.

    It reads more variables than urllib, prefers different ones, and applies `*` to names, not to addresses.
    """
    if not any(os.environ.get(name) for name in _PROXIES):
        return False
    direct = [os.environ[name] for name in _NO_PROXIES if os.environ.get(name)]
    return not direct or any(_LOOPBACK not in re.split(r"[,\s]+", hosts) for hosts in direct)


def _address_of(store: Any) -> str:  # noqa: ANN401 - its class is what is asked for
    """Address to which the library sends the requests of a store, without the bucket."""
    from obstore.store import AzureStore, GCSStore  # noqa: PLC0415 - an extra, and only this needs it

    if not isinstance(store, (AzureStore, GCSStore)):
        raise UnfilteredError("by the library obstore, which reads lists of this provider")
    config: Any = store.config
    if isinstance(store, GCSStore):
        given = config.get("base_url") or os.environ.get("GOOGLE_BASE_URL") or _of_account(config)
        return str(given or _GOOGLE).rstrip("/")
    names = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
    given = config.get("endpoint") or next(filter(None, map(os.environ.get, names)), None)
    account = config.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not given and not account:
        raise UnfilteredError("the storage account's address is not known: set REMOTE_SETTING.endpoint")
    return str(given or f"https://{account}.blob.core.windows.net").rstrip("/")


def _of_account(config: dict[str, Any]) -> str:
    """The address in a service account's file, which emulators put there."""
    path = config.get("service_account") or os.environ.get("GOOGLE_SERVICE_ACCOUNT") or ""
    with suppress(OSError, ValueError, AttributeError), open(path, encoding="utf-8") as file:
        return str(json.load(file).get("gcs_base_url") or "")
    return ""


def _twin(store: Any, address: str) -> ObjectStore:  # noqa: ANN401 - a GCSStore or AzureStore
    from obstore.store import AzureStore  # noqa: PLC0415

    name = "endpoint" if isinstance(store, AzureStore) else "base_url"
    kind: Any = type(store)
    twin: ObjectStore = kind(
        prefix=store.prefix,
        config={**store.config, name: address},
        client_options={**(store.client_options or {}), "allow_http": True},
        retry_config=store.retry_config,
        credential_provider=store.credential_provider,
    )
    return twin


def _opener() -> urllib.request.OpenerDirector:
    """URL opener that follows no redirection, so that credentials are sent nowhere else."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.HTTPDefaultErrorHandler,
    ):
        opener.add_handler(handler())
    return opener


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream: str
    odd: Callable[[str], None]

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002, ANN401 - the base class's
        """Nothing."""

    def do_GET(self) -> None:
        """Answer with the store's list, without unnameable keys."""
        status, headers, data = self._asked()
        if status == 200:  # noqa: PLR2004
            try:
                data = without_odd(data, self.odd)
            except ET.ParseError as error:
                status, data = 400, f"the store's list is not XML: {error}".encode()
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _asked(self) -> tuple[int, list[tuple[str, str]], bytes]:
        kept = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        plain = "&encoding-type=url" if "list-type=2" in self.path else ""  # of GCS, where none is signed
        request = urllib.request.Request(f"{self.upstream}{self.path}{plain}", headers=kept)  # noqa: S310
        try:
            with _opener().open(request, timeout=ANSWER_S) as answer:
                return answer.status, answer.headers.items(), answer.read(MAX_PAGE_BYTES)
        except urllib.error.HTTPError as error:
            with error:
                if error.code < 400:  # noqa: PLR2004 - the library would follow, with its credentials
                    return 502, [], f"{self.upstream}: status code {error.code}".encode()
                return error.code, list(error.headers.items()), error.read(1 << 16)
        except (OSError, HTTPException) as error:
            return 502, [], f"{self.upstream}: {getattr(error, 'reason', None) or error}".encode()


def without_odd(text: bytes, odd: Callable[[str], None]) -> bytes:
    """A page of a list without the entries of unnameable keys.

    Raises:
        xml.etree.ElementTree.ParseError: it is not XML.
    """
    bare = re.sub(rb"\sxmlns=\"[^\"]*\"", b"", text, count=1)
    bare = _REFERENCE.sub(_kept, bare)
    bare = re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", lambda found: _private(found[0][0]), bare)
    answer = ET.fromstring(bare)  # noqa: S314 - expat bounds entities
    escaped = answer.findtext("EncodingType") == "url"
    for parent in [*answer.iter()]:
        for entry in [*parent]:
            name = entry.find(_ENTRIES[entry.tag]) if entry.tag in _ENTRIES else None
            if name is None:
                continue
            key = "".join(
                chr(ord(char) - _PRIVATE) if 0 <= ord(char) - _PRIVATE < 32 else char  # noqa: PLR2004
                for char in name.text or ""
            )
            if escaped:
                key = unquote_plus(key)
            elif name.attrib.pop("Encoded", "") == "true":
                key = unquote(key)
            if is_odd(key.removesuffix("/")):
                odd(key)
                parent.remove(entry)
            else:
                name.text = key
    left: bytes = ET.tostring(answer, encoding="utf-8", xml_declaration=True)
    return left


def _kept(found: re.Match[bytes]) -> bytes:
    number = int(found[1], 16) if found[1] else int(found[2])
    return _private(number) if number in _CONTROLS else found[0]


def _private(number: int) -> bytes:
    return chr(_PRIVATE + number).encode()
