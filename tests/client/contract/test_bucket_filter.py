"""Lists of GCS and Azure without the keys that the library cannot name."""

from __future__ import annotations

import http
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from support.azure_front import ENVIRONMENT, AzureFront
from support.bucket_lab import KEYS, S3Server
from support.faulty_store import FaultyStore, Proxy, ProxyHandler
from support.gcs_front import GcsFront, gcs_remote

from rla_client.contract.bucket_filter import UnfilteredError, filtered, is_odd, without_odd
from rla_client.contract.bucket_list import UnlistableError, list_all, list_folder

pytest.importorskip("obstore")
ODD = ["log/a//b", "log/../x", "log/./y", "log/c\x01d", "log/u/\x7f", "/lead"]
PLAIN = ["log/a/ok", "log/a b+c&d=é?#", "log/w/x%2Fy", "log/z/z/z", "log/\x85", "other/1"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = S3Server(tmp_path_factory.mktemp("s3"))
    yield made
    made.stop()


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (KEYS | ENVIRONMENT).items():
        monkeypatch.setenv(name, value)
    name = server.bucket()
    for key in ODD + PLAIN:
        server.client().put_object(Bucket=name, Key=key, Body=key.encode())
    return name


@pytest.fixture(params=["gcs", "azure"])
def front(request: pytest.FixtureRequest, server: S3Server) -> Iterator[GcsFront | AzureFront]:
    made: GcsFront | AzureFront = GcsFront(server.port) if request.param == "gcs" else AzureFront(server)
    yield made
    if isinstance(made, AzureFront):
        assert made.refused == []
    made.close()


def store_of(
    front: GcsFront | AzureFront, bucket: str, folder: Path, *, endpoint: str = "", prefix: str | None = None
) -> Any:
    from obstore.store import AzureStore, GCSStore

    common: Any = {"client_options": {"allow_http": True}, "prefix": prefix, "retry_config": retries()}
    if isinstance(front, AzureFront):
        return AzureStore(bucket, endpoint=endpoint or front.endpoint, **common)
    account = str(gcs_remote(front, bucket, folder)["credentials_file"])
    return GCSStore(bucket, base_url=endpoint or front.endpoint, service_account=account, **common)


def retries() -> Any:
    from datetime import timedelta

    short = {"init_backoff": timedelta(milliseconds=10), "max_backoff": timedelta(milliseconds=50)}
    return {"max_retries": 3, "retry_timeout": timedelta(seconds=20), "backoff": short}


@pytest.mark.parametrize("keys_of_a_page", [1000, 2, 1])
def test_odd_keys_cost_no_other(
    front: GcsFront | AzureFront, bucket: str, tmp_path: Path, keys_of_a_page: int
) -> None:
    front.page = keys_of_a_page
    store, odd = store_of(front, bucket, tmp_path), set[str]()
    assert sorted({meta["path"] for meta in list_all(store, "", odd.add)}) == sorted(PLAIN)
    assert odd == set(ODD)
    odd.clear()
    below = sorted({meta["path"] for meta in list_all(store, "log", odd.add)})
    assert below == sorted(key for key in PLAIN if key.startswith("log/"))
    assert odd <= {key for key in ODD if key.startswith("log/")}
    odd.clear()
    found = list_folder(store, "log", odd.add)
    assert sorted(meta["path"] for meta in found["objects"]) == ["log/a b+c&d=é?#", "log/\x85"]
    assert sorted(found["common_prefixes"]) == ["log/a", "log/u", "log/w", "log/z"]
    assert odd == {"log/../", "log/./", "log/c\x01d"}
    below_a = store_of(front, bucket, tmp_path, prefix="log")
    assert [meta["path"] for meta in list_all(below_a, "a", odd.add)] == ["a/ok"]
    (meta,) = list_folder(below_a, "a", odd.add)["objects"]
    assert meta["size"] == len("log/a/ok")
    assert meta["e_tag"] == store.head("log/a/ok")["e_tag"]


def test_a_store_that_fails_is_asked_again_and_its_error_is_the_library_s(
    front: GcsFront | AzureFront, bucket: str, tmp_path: Path
) -> None:
    import obstore
    from obstore.exceptions import GenericError

    before = FaultyStore(int(front.endpoint.rpartition(":")[2]))
    asked: list[str] = []

    def fault(_: str, path: str) -> str | None:
        asked.append(path)
        return ("503", "cut")[len(asked) % 2] if 1 < len(asked) <= most else None  # the first by the library

    try:
        store = store_of(front, bucket, tmp_path, endpoint=before.endpoint)
        before.fault, most = fault, 3
        assert len(list_folder(store, "log/a", lambda _: None)["objects"]) == 1
        asked.clear()
        most = 100
        with pytest.raises(GenericError, match=r"SlowDown|502"):
            list_folder(store, "log/a", lambda _: None)
        assert len(asked) == 1 + 4
        before.fault = lambda _method, _path: None
        assert len(obstore.list_with_delimiter(store, "other")["objects"]) == 1
    finally:
        before.close()


class _Elsewhere(ProxyHandler):
    def _serve(self) -> None:
        self._body()
        self.owner.asked.append(self.headers.get("Authorization"))
        self._answer(302, [("Location", self.owner.goal)], b"")


class Elsewhere(Proxy):
    """Answers that what is asked for is at `goal`."""

    def __init__(self, goal: str) -> None:
        self.asked: list[str | None] = []
        self.goal = goal
        super().__init__(0, _Elsewhere)


def test_credentials_go_to_no_other_address(bucket: str, server: S3Server, tmp_path: Path) -> None:
    from obstore.exceptions import BaseError

    goal = Elsewhere("/")
    first = Elsewhere(goal.endpoint)
    front = AzureFront(server)
    try:
        store = store_of(front, bucket, tmp_path, endpoint=first.endpoint)
        with filtered(store, pytest.fail) as twin, pytest.raises(BaseError):
            list(twin.list())
        assert (len(first.asked) > 0, goal.asked) == (True, [])
        assert all(first.asked)
    finally:
        for one in (front, first, goal):
            one.close()


def test_what_cannot_be_had_names_the_key(
    front: GcsFront | AzureFront, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from obstore.store import MemoryStore

    with pytest.raises(UnfilteredError, match="this provider"), filtered(MemoryStore(), pytest.fail):
        pass
    store = store_of(front, bucket, tmp_path)
    for name in ("HTTP_PROXY", "ALL_PROXY", "all_proxy", "http_proxy"):
        with monkeypatch.context() as proxied:
            proxied.setenv("NO_PROXY", "*")  # for the library that means names, no addresses
            proxied.setenv(name, "http://127.0.0.1:1")
            with pytest.raises(UnlistableError) as caught:
                list_folder(store, "log/a", pytest.fail)
        assert "no_proxy=127.0.0.1); delete or rename" in str(caught.value)
        assert caught.value.key == "log/a//"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "localhost, 127.0.0.1")
    assert len(list_folder(store, "log/a", lambda _: None)["objects"]) == 1


def entries(*names: str) -> bytes:
    contents = "".join(f"<Contents><Key>{name}</Key><Size>1</Size></Contents>" for name in names)
    return f'<?xml version="1.0"?><List xmlns="http://x/">{contents}<Prefix>p/</Prefix></List>'.encode()


def test_a_key_is_named_as_it_is_however_the_list_writes_it() -> None:
    odd: list[str] = []
    text = entries("a&#x1;", "b&#27;c", "d\x02", "e&amp;&#x41;", "f&#xd;", "g%01", "h//i", "j/")
    kept = ET.fromstring(without_odd(text, odd.append))
    assert odd == ["a\x01", "b\x1bc", "d\x02", "f\r", "h//i"]
    assert [one.text for one in kept.iter("Key")] == ["e&A", "g%01", "j/"]
    odd.clear()
    escaped = text.replace(b"<Prefix>", b"<EncodingType>url</EncodingType><Prefix>")
    assert [one.text for one in ET.fromstring(without_odd(escaped, odd.append)).iter("Key")] == ["e&A", "j/"]
    assert "g\x01" in odd
    blobs = (
        '<R><Blobs><Blob><Name Encoded="true">a%01</Name></Blob><Blob><Name>b%01</Name></Blob></Blobs></R>'
    )
    assert b"b%01" in without_odd(blobs.encode(), odd.append)
    assert odd[-1] == "a\x01"
    with pytest.raises(ET.ParseError):
        without_odd(b"<html><p>", odd.append)


def test_a_list_that_is_no_xml_is_an_error(bucket: str, server: S3Server, tmp_path: Path) -> None:
    from obstore.exceptions import BaseError

    class Page(ProxyHandler):
        def _serve(self) -> None:
            self._answer(http.HTTPStatus.OK, [], b"<html><p>Welcome")

    page = Proxy(0, Page)
    front = AzureFront(server)
    try:
        store = store_of(front, bucket, tmp_path, endpoint=page.endpoint)
        with (
            filtered(store, pytest.fail) as twin,
            pytest.raises(BaseError, match="the store's list is not XML"),
        ):
            list(twin.list())
    finally:
        page.close()
        front.close()


def test_which_keys_are_odd() -> None:
    assert all(map(is_odd, [*ODD, "", ".", "a/..", "a\n"]))
    assert not any(map(is_odd, [*PLAIN, "...", "a/...b", ".a", "a..", "..a/b."]))
