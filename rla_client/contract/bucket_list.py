"""Listing of a bucket's objects.

Anyone may put an object under a key with an empty component (`a//b`), with `.` or `..`, or with a control
character. The library `obstore` accepts no such key, and returns nothing of a page (1,000 keys) with one.
Then the list is requested again. For S3 and compatible stores we send the request, which the library signs
with its credentials, and parse the answer ourselves. For GCS and Azure the library sends it, and the
unnameable keys are removed on the way (`bucket_filter`). They are left out and reported; none of our objects
has such a key.
"""

from __future__ import annotations

import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree as ET

from rla_client.contract.bucket_filter import UnfilteredError, filtered, is_odd
from rla_client.contract.errors import RlaError

if TYPE_CHECKING:
    from obstore import ListResult, ObjectMeta
    from obstore.store import ObjectStore

LIST_KEYS: Final = 1000  # of a page
MAX_PAGE_BYTES: Final = 16 << 20  # 1,000 keys of 1,024 bytes, escaped
ANSWER_S: Final = 25.0
TRIES: Final = 4
FIRST_PAUSE_S: Final = 0.2  # twice as long each time
_SIGNED_FOR: Final = timedelta(minutes=5)
_NAMED: Final = re.compile(r'[Pp]ath "((?:[^"\\]|\\.)*)"')
_LATER: Final = {408, 429}


class UnlistableError(RlaError):
    """A bucket has a key that prevents its listing. `key` as the library prints it."""

    def __init__(self, key: str, why: str) -> None:
        self.key = key
        super().__init__(f"an object's key {key!r} cannot be listed ({why}); delete or rename that object")


def list_all(store: ObjectStore, prefix: str, odd: Callable[[str], None]) -> Iterator[ObjectMeta]:
    """All objects whose keys begin with `prefix/` (empty: all objects). Some may come twice.

    Args:
        store: of the library.
        prefix: without `/` at its ends.
        odd: called with each key that is left out.

    Raises:
        UnlistableError: there are odd keys, and the store's list cannot be read without the library.
        OSError, ValueError, obstore.exceptions.BaseError: the store does not answer, or refuses.
    """
    import obstore  # noqa: PLC0415 - an extra, and only this needs it
    from obstore.exceptions import InvalidPathError  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    last = ""
    try:
        for page in obstore.list(store, prefix or None, chunk_size=LIST_KEYS):
            yield from page
            last = page[-1]["path"] if page else last
    except InvalidPathError as error:
        key = _key_in(error)
        if isinstance(store, S3Store):
            for objects, _ in _pages(store, prefix, odd, key, last, deep=True):
                yield from objects
            return
        with _without_odd(store, odd, key) as twin:
            for page in obstore.list(twin, prefix or None, offset=last or None, chunk_size=LIST_KEYS):
                yield from page


def list_folder(store: ObjectStore, prefix: str, odd: Callable[[str], None]) -> ListResult[list[ObjectMeta]]:
    """Objects directly below `prefix/`, and the first components of what is further below; as `list_all`."""
    import obstore  # noqa: PLC0415
    from obstore.exceptions import InvalidPathError  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    try:
        found = obstore.list_with_delimiter(store, prefix or None)
    except InvalidPathError as error:
        if not isinstance(store, S3Store):
            with _without_odd(store, odd, _key_in(error)) as twin:
                found = obstore.list_with_delimiter(twin, prefix or None)
                return {"objects": [*found["objects"]], "common_prefixes": found["common_prefixes"]}
        pages = [*_pages(store, prefix, odd, _key_in(error), "", deep=False)]
        return {
            "objects": [meta for objects, _ in pages for meta in objects],
            "common_prefixes": [folder for _, folders in pages for folder in folders],
        }
    return {"objects": [*found["objects"]], "common_prefixes": found["common_prefixes"]}


def _key_in(error: Exception) -> str:
    """The refused key in an error of the library."""
    named = _NAMED.search(str(error))
    return named[1] if named else str(error).partition("\n")[0]


@contextmanager
def _without_odd(store: ObjectStore, odd: Callable[[str], None], key: str) -> Iterator[ObjectStore]:
    from obstore.exceptions import InvalidPathError  # noqa: PLC0415

    try:
        with filtered(store, odd) as twin:
            yield twin
    except UnfilteredError as error:
        raise UnlistableError(key, str(error)) from error
    except InvalidPathError as error:
        raise UnlistableError(_key_in(error), "the library obstore refuses it") from error


def _pages(
    store: ObjectStore, prefix: str, odd: Callable[[str], None], key: str, after: str, *, deep: bool
) -> Iterator[tuple[list[ObjectMeta], list[str]]]:
    """Objects and folders of each page of S3, by requests of our own. `key`: the refused one."""
    base, above = _base_of(store, key)
    below = f"{above}{prefix}/" if prefix else above
    asked = {"prefix": below, "start-after": f"{above}{after}" if after else ""}
    while True:
        answer = _parsed(_answer(_signed(store, base, asked, key, deep=deep)), key)
        yield (
            [*_named_only(map(_meta, answer.iter("Contents")), above, asked["prefix"], odd)],
            [*_folders(answer, above, odd)],
        )
        token = answer.findtext("NextContinuationToken")
        if answer.findtext("IsTruncated") != "true" or not token:
            return
        asked = {"prefix": asked["prefix"], "continuation-token": token}


def _base_of(store: Any, key: str) -> tuple[str, str]:  # noqa: ANN401 - an S3Store, whose types lack half of it
    """Address of the bucket, and the store's prefix of each key (ending with `/`)."""
    url = urlsplit(_sign(store, "x", key))
    above = str(store.prefix or "").strip("/")
    above = f"{above}/" if above else ""
    path = url.path.removesuffix("/x").removesuffix(quote(f"/{above}".rstrip("/")) if above else "")
    return f"{url.scheme}://{url.netloc}{path}", above


def _signed(store: Any, base: str, asked: dict[str, str], key: str, *, deep: bool) -> str:  # noqa: ANN401
    """Address of a page of the list.

    The library signs addresses of objects: this one is that of the object "" of a bucket whose address ends
    with what is asked for. The `/` that it puts between the two is the last value's.
    """
    from obstore.store import S3Store  # noqa: PLC0415

    query = {"list-type": "2", "encoding-type": "url", "max-keys": str(LIST_KEYS), **asked}
    text = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items() if value)
    config: Any = {name: value for name, value in store.config.items() if "endpoint" not in name}
    config |= {
        "endpoint": f"{base}?{text}&{'x-id' if deep else 'delimiter'}=",
        "virtual_hosted_style_request": "true",
    }
    twin = S3Store(
        config=config, client_options=store.client_options, credential_provider=store.credential_provider
    )
    return _sign(twin, "", key)


def _sign(store: Any, path: str, key: str) -> str:  # noqa: ANN401
    import obstore  # noqa: PLC0415
    from obstore.exceptions import BaseError  # noqa: PLC0415

    try:
        return obstore.sign(store, "GET", path, _SIGNED_FOR)
    except (BaseError, ValueError) as error:
        raise UnlistableError(
            key, f"the request cannot be signed: {str(error).partition(chr(10))[0]}"
        ) from error


def _answer(url: str) -> bytes:
    """The answer's body; errors name no address, since it has a signature."""
    for number in range(TRIES):
        if number:
            time.sleep(FIRST_PAUSE_S * 2 ** (number - 1))
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:  # noqa: S310 - of the endpoint
                data: bytes = answer.read(MAX_PAGE_BYTES)
                return data
        except urllib.error.HTTPError as error:
            with error:
                why = f"status code: {error.code} {error.read(4096).decode(errors='replace')}"
            if error.code < 500 and error.code not in _LATER:  # noqa: PLR2004 - a client's fault
                break
        except (OSError, HTTPException) as error:
            why = f"{getattr(error, 'reason', None) or error}"
    raise OSError(f"the bucket's list: {why}")


def _parsed(text: bytes, key: str) -> ET.Element:
    """The answer without namespaces."""
    try:
        bare = re.sub(rb"\sxmlns=\"[^\"]*\"", b"", text, count=1)
        answer = ET.fromstring(bare)  # noqa: S314 - expat bounds entities
    except ET.ParseError as error:
        raise UnlistableError(key, f"the store's list is not XML: {error}") from error
    if answer.findtext("EncodingType") == "url":
        for element in answer.iter():
            if element.tag in {"Key", "Prefix"}:
                element.text = unquote_plus(element.text or "", errors="surrogateescape")  # as AWS writes
    return answer


def _meta(entry: ET.Element) -> ObjectMeta:
    moment = (entry.findtext("LastModified") or "").replace("Z", "+00:00")
    return {
        "path": entry.findtext("Key") or "",
        "last_modified": datetime.fromisoformat(moment),
        "size": int(entry.findtext("Size") or 0),
        "e_tag": entry.findtext("ETag"),
        "version": None,
    }


def _named_only(
    metas: Iterator[ObjectMeta], above: str, prefix: str, odd: Callable[[str], None]
) -> Iterator[ObjectMeta]:
    """The objects that the library can name, in its spelling."""
    for meta in metas:
        path = meta["path"].removesuffix("/")
        if is_odd(path):
            odd(meta["path"])
        elif meta["path"] != prefix:
            yield {**meta, "path": path.removeprefix(above)}


def _folders(answer: ET.Element, above: str, odd: Callable[[str], None]) -> Iterator[str]:
    for entry in answer.iter("CommonPrefixes"):
        folder = entry.findtext("Prefix") or ""
        if is_odd(folder.removesuffix("/")):
            odd(folder)
        else:
            yield folder.removesuffix("/").removeprefix(above)
