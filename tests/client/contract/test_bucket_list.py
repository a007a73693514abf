"""A bucket's list where somebody has put objects under keys that the library cannot name."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from support.bucket_lab import KEYS, S3Server
from support.faulty_store import FaultyStore

from rla_client.contract import bucket_list
from rla_client.contract.bucket_list import list_all, list_folder

pytest.importorskip("obstore")
SECRET = "s3c/ret+="
ODD = ["log/a//b", "log/../x", "log/./y", "log/c\x01d", "log/u/\x7f", "/lead"]
PLAIN = ["log/a/ok", "log/a b+c&d=é?#", "log/w/x%2Fy", "log/z/z/z", "log/\x85", "other/1"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = S3Server(tmp_path_factory.mktemp("s3"))
    yield made
    made.stop()


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    name = server.bucket()
    for key in ODD + PLAIN:
        server.client().put_object(Bucket=name, Key=key, Body=key.encode())
    return name


def store_of(endpoint: str, bucket: str, prefix: str | None = None) -> Any:
    from obstore.store import S3Store

    return S3Store(
        bucket, prefix=prefix, endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}
    )


@pytest.mark.parametrize("keys_of_a_page", [1000, 2, 1])
def test_odd_keys_cost_no_other(
    server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, keys_of_a_page: int
) -> None:
    monkeypatch.setattr(bucket_list, "LIST_KEYS", keys_of_a_page)
    store, odd = store_of(server.endpoint, bucket), set[str]()
    assert sorted({meta["path"] for meta in list_all(store, "", odd.add)}) == sorted(PLAIN)
    assert odd == set(ODD)
    odd.clear()
    below = sorted({meta["path"] for meta in list_all(store, "log", odd.add)})
    assert below == sorted(key for key in PLAIN if key.startswith("log/"))
    assert odd == {key for key in ODD if key.startswith("log/")}
    odd.clear()
    found = list_folder(store, "log", odd.add)
    assert sorted(meta["path"] for meta in found["objects"]) == ["log/a b+c&d=é?#", "log/\x85"]
    assert sorted(found["common_prefixes"]) == ["log/a", "log/u", "log/w", "log/z"]
    assert odd == {"log/../", "log/./", "log/c\x01d"}
    below_a = store_of(server.endpoint, bucket, "log")
    assert [meta["path"] for meta in list_all(below_a, "a", odd.add)] == ["a/ok"]
    (meta,) = list_folder(below_a, "a", odd.add)["objects"]
    (plain,) = list_all(below_a, "z", odd.add)
    assert (meta["size"], len(plain["path"])) == (len("log/a/ok"), len("z/z/z"))
    assert meta["e_tag"] == f'"{hashlib.md5(b"log/a/ok", usedforsecurity=False).hexdigest()}"'
    assert abs((meta["last_modified"] - plain["last_modified"]).total_seconds()) < 60


@pytest.mark.slow
def test_a_store_that_fails_is_asked_again_and_its_answer_shows_no_signature(
    server: S3Server, bucket: str
) -> None:
    front = FaultyStore(server.port)
    failed: list[str] = []

    def fault(_: str, path: str) -> str | None:
        if "X-Amz-Signature" not in path or len(failed) >= most:
            return None
        failed.append(path)
        return "503" if len(failed) % 2 else "cut"

    try:
        front.fault, most = fault, 2
        store = store_of(front.endpoint, bucket)
        assert len(list_folder(store, "log/a", lambda _: None)["objects"]) == 1
        failed.clear()
        most = 100
        with pytest.raises(OSError, match="the bucket's list") as caught:
            list_folder(store, "log/a", lambda _: None)
        assert len(failed) == bucket_list.TRIES
        assert "Signature" not in str(caught.value)
        assert KEYS["AWS_ACCESS_KEY_ID"] not in str(caught.value)
    finally:
        front.close()


def test_a_space_in_a_key_is_one_however_the_list_writes_it(server: S3Server, bucket: str) -> None:
    front = FaultyStore(server.port)
    try:
        front.fault = lambda _method, path: "plus" if "encoding-type=url" in path else None
        found = list_folder(store_of(front.endpoint, bucket), "log", lambda _: None)["objects"]
        assert sorted(meta["path"] for meta in found) == ["log/a b+c&d=é?#", "log/\x85"]
        assert front.faults["plus"] == 1
    finally:
        front.close()


def signature(url: str) -> str:
    """Of a presigned address, by the rules of AWS (Signature Version 4), from its other parts."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    del given["X-Amz-Signature"]
    plain = "-_.~"
    query = "&".join(f"{quote(name, plain)}={quote(given[name], plain)}" for name in sorted(given))
    asked = "\n".join(
        ["GET", parts.path or "/", query, f"host:{parts.netloc}", "", "host", "UNSIGNED-PAYLOAD"]
    )
    scope = given["X-Amz-Credential"].partition("/")[2]
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", given["X-Amz-Date"], scope, digest])
    key = f"AWS4{SECRET}".encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({}, "https://s3.eu-west-1.amazonaws.com/b"),
        ({"endpoint": "https://h.example:9000"}, "https://h.example:9000/b"),
        (
            {"endpoint": "https://b.h.io", "virtual_hosted_style_request": True, "session_token": "t/k+"},
            "https://b.h.io",
        ),
        ({"prefix": "some/pre fix"}, "https://s3.eu-west-1.amazonaws.com/b"),
    ],
)
@pytest.mark.parametrize("deep", [True, False])
def test_a_request_is_signed_as_the_store_expects_it(settings: dict[str, Any], base: str, deep: bool) -> None:
    from obstore.store import S3Store

    store = S3Store("b", region="eu-west-1", access_key_id="id", secret_access_key=SECRET, **settings)
    assert bucket_list._base_of(store, "") == (base, "some/pre fix/" if "prefix" in settings else "")
    asked = {"prefix": "p/a b+c&d=é/", "start-after": "p/x~(1)*'"}
    url = bucket_list._signed(store, base, asked, "", deep=deep)
    given = dict(parse_qsl(urlsplit(url).query))
    assert given["X-Amz-Signature"] == signature(url)
    assert {name: given[name] for name in asked} == asked
    assert given.get("delimiter") == (None if deep else "/")
