"""The lake of a bucket: what is ended, what it costs, what a kill, a second build and damage leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.bucket_lab import KEYS, S3Server
from support.faulty_store import FaultyStore
from support.written_runs import MakeRun

from rla_client.contract.errors import ArgumentError
from rla_client.database.lake.bucket_lake import opened

pytest.importorskip("duckdb")
PREFIX = "some/prefix"
LAKE = f"{PREFIX}/.rla/lake/"
Send = Callable[..., None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = S3Server(tmp_path_factory.mktemp("s3"))
    yield made
    made.stop()


@pytest.fixture
def bucket(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    return server.bucket()


@pytest.fixture
def send(server: S3Server, bucket: str, root: Path) -> Send:
    """Put a run's files into the bucket as the agent does when it has ended."""
    client = server.client()

    def put(index: str, *, ended: bool = True, table: str = "task") -> None:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_file() and f"/{table}/{index}" in f"/{name}":
                client.put_object(Bucket=bucket, Key=f"{PREFIX}/{name}", Body=path.read_bytes())
        if ended:
            client.put_object(Bucket=bucket, Key=f"{PREFIX}/log/{table}/{index}/SHA256SUMS", Body=b"0 *x\n")

    return put


def rla_bucket(
    server: S3Server | FaultyStore, bucket: str, *words: str, sql: str = "", code: int = 0
) -> subprocess.CompletedProcess[str]:
    command = ["sql", sql, "--json"] if sql else ["lake", *words]
    at = ["--bucket", f"s3://{bucket}/{PREFIX}", "--endpoint", server.endpoint]
    done = subprocess.run(
        [sys.executable, "-m", "rla_client.cli.app", *command, *at],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def asked(server: S3Server, bucket: str, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(rla_bucket(server, bucket, sql=query).stdout)
    return found


def keys(server: S3Server, bucket: str) -> set[str]:
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=LAKE)
    return {one["Key"].removeprefix(LAKE) for page in pages for one in page.get("Contents", [])}


@pytest.mark.slow
def test_ended_runs_are_built_asked_and_verified(
    server: S3Server, bucket: str, send: Send, make_run: MakeRun
) -> None:
    first, second = make_run(number=1), make_run(number=2)
    live = make_run(number=3, state="running")
    send(first)
    send(second)
    send(live, ended=False)
    assert "2 run(s) in the lake; 2 read" in rla_bucket(server, bucket, "build").stdout
    query = 'SELECT "index", state FROM runs ORDER BY 1'
    done = rla_bucket(server, bucket, sql=query)
    assert [row["index"] for row in json.loads(done.stdout)] == sorted([first, second])
    assert "without 1 run(s)" in done.stderr
    lr = asked(server, bucket, "SELECT DISTINCT number FROM params WHERE name = 'lr'")
    assert lr == [{"number": 0.1}]
    assert asked(server, bucket, "SELECT count(*) AS n FROM rows WHERE metric = 'return'") == [{"n": 20}]
    kinds = asked(server, bucket, "SELECT DISTINCT kind FROM files ORDER BY 1")
    assert {"kind": "checkpoint"} in kinds
    assert {"kind": "log"} in kinds
    assert "2 run(s) compared with their files: 0 differ" in rla_bucket(server, bucket, "verify").stdout


@pytest.mark.slow
def test_it_says_what_the_lake_of_the_same_folder_says(
    server: S3Server, bucket: str, send: Send, make_run: MakeRun, root: Path
) -> None:
    from rla_client import database
    from rla_client.database.lake.build import build

    for number in range(3):
        send(make_run(number=number))
    rla_bucket(server, bucket, "build")
    build(root, time.time())
    for view in ("runs", "params", "last", "rows", "system"):
        query = f"SELECT count(*) AS n, bit_xor(hash(t)) AS content FROM {view} t"
        there = asked(server, bucket, query)[0]
        here = database.open(root).sql(query).fetchone()
        assert here is not None
        assert [str(there["n"]), str(there["content"])] == [str(value) for value in here], view


@pytest.mark.slow
def test_a_build_costs_what_is_new(server: S3Server, bucket: str, send: Send, make_run: MakeRun) -> None:
    for number in range(12):
        send(make_run(number=number))
    rla_bucket(server, bucket, "build")
    before = len(server.requests())
    assert "12 run(s) in the lake; 0 read" in rla_bucket(server, bucket, "build").stdout
    assert len(server.requests()) - before <= 5  # manifest, runs of the part, log/, what is to be swept
    new = make_run(number=12)
    send(new)
    before = len(server.requests())
    assert "13 run(s) in the lake; 1 read" in rla_bucket(server, bucket, "build").stdout
    new_requests = server.requests()[before:]
    read = [
        one for one in new_requests if one.startswith("GET") and "/log/" in one and "list-type" not in one
    ]
    name = new.rpartition("/")[2][:15]
    assert read
    assert [one for one in read if name not in one] == []


@pytest.mark.further
@pytest.mark.slow
def test_a_changed_run_and_one_that_goes_on_are_left_out_until_built(
    server: S3Server, bucket: str, send: Send, make_run: MakeRun, root: Path
) -> None:
    first, second, third = (make_run(number=number) for number in range(3))
    for index in (first, second, third):
        send(index)
    rla_bucket(server, bucket, "build")
    (root / "log/task" / first / "note.json").write_text('{"tags": ["best"]}')
    send(first)
    time.sleep(1.1)  # S3 tells whole seconds
    part = f"{PREFIX}/log/task/{second}/.rla-parts/0-0-1-0.1"
    server.client().put_object(Bucket=bucket, Key=part, Body=b"1")
    names = 'SELECT "index" FROM runs'
    assert asked(server, bucket, names) == [{"index": third}]
    rla_bucket(server, bucket, "build")
    assert {row["index"] for row in asked(server, bucket, names)} == {first, third}
    assert asked(server, bucket, "SELECT tags FROM runs WHERE len(tags) > 0") == [{"tags": "best"}]


@pytest.mark.slow
def test_a_build_that_is_killed_is_never_read(
    server: S3Server, bucket: str, send: Send, make_run: MakeRun
) -> None:
    send(make_run(number=1))
    rla_bucket(server, bucket, "build")
    send(make_run(number=2))
    before = keys(server, bucket)
    killed = """
import os, sys, time
from rla_client.database.lake.bucket_build import build_bucket
from rla_client.database.lake.bucket_lake import BucketLake, opened
BucketLake.put_manifest = lambda *_: os._exit(9)
with opened(*sys.argv[1:]) as lake:
    build_bucket(lake, time.time())
"""
    at = [f"s3://{bucket}/{PREFIX}", server.endpoint]
    assert subprocess.run([sys.executable, "-c", killed, *at], check=False, env=os.environ).returncode == 9
    assert keys(server, bucket) > before
    assert asked(server, bucket, "SELECT count(*) AS n FROM runs") == [{"n": 1}]
    assert "2 run(s) in the lake; 1 read" in rla_bucket(server, bucket, "build").stdout


def test_of_two_builds_one_counts_and_old_rubbish_is_swept(
    server: S3Server, bucket: str, send: Send, make_run: MakeRun
) -> None:
    from rla_client.database.lake.bucket_build import build_bucket
    from rla_client.database.lake.bucket_lake import opened
    from rla_client.database.lake.bucket_writer import KEEP_S
    from rla_client.database.lake.manifest import read_parts

    at = (f"s3://{bucket}/{PREFIX}", server.endpoint)
    send(make_run(number=1))
    with opened(*at) as late, opened(*at) as early:
        assert build_bucket(early, time.time()) is not None
        assert build_bucket(late, time.time()) is None
    assert len({name.rpartition("/")[0] for name in keys(server, bucket)} - {""}) == 2
    with opened(*at) as lake:
        assert build_bucket(lake, time.time() + KEEP_S + 60) is not None
        counts = {part.name for part in read_parts(lake.root)}
    assert {name.rpartition("/")[0] for name in keys(server, bucket)} - {""} == counts


@pytest.mark.further
@pytest.mark.slow
def test_a_store_that_knows_etags_without_quotes_only(
    server: S3Server, bucket: str, send: Send, make_run: MakeRun
) -> None:
    store = FaultyStore(server.port)
    store.fault = lambda _method, _path: "bare etags"
    for number in (1, 2):
        send(make_run(number=number))
        assert f"{number} run(s) in the lake; 1 read" in rla_bucket(store, bucket, "build").stdout
    store.close()


@pytest.mark.further
@pytest.mark.slow
def test_damage_leaves_the_lake(server: S3Server, bucket: str, send: Send, make_run: MakeRun) -> None:
    send(make_run(number=1))
    rla_bucket(server, bucket, "build")
    name = next(key for key in keys(server, bucket) if key.endswith("/rows.parquet"))
    body = server.client().get_object(Bucket=bucket, Key=LAKE + name)["Body"].read()
    server.client().put_object(Bucket=bucket, Key=LAKE + name, Body=body[:20] + b"\0\1\2\3" + body[24:])
    assert "damaged" in rla_bucket(server, bucket, "verify", code=1).stdout
    assert "1 run(s) in the lake; 1 read" in rla_bucket(server, bucket, "build").stdout
    rla_bucket(server, bucket, "verify")


def test_a_bucket_that_is_not_there_is_told(server: S3Server, bucket: str) -> None:
    assert "hint: there is no such bucket" in rla_bucket(server, "no-such-bucket", "build", code=1).stderr


def test_a_prefix_without_a_lake_is_no_empty_answer(server: S3Server, bucket: str) -> None:
    assert (
        "has no lake\nhint: is the prefix right?" in rla_bucket(server, bucket, sql="SELECT 1", code=1).stderr
    )


def test_an_endpoint_with_a_password_is_refused(bucket: str) -> None:
    with pytest.raises(ArgumentError) as found, opened(f"s3://{bucket}", "http://user:secret@127.0.0.1:1"):
        pass
    assert "secret" not in str(found.value)


def test_an_object_that_is_no_file_costs_no_run(
    server: S3Server, bucket: str, root: Path, make_run: MakeRun, send: Send
) -> None:
    index = make_run(number=1)
    send(index)
    for key in (f"{PREFIX}/log//x", f"{PREFIX}/log/task/../x", f"{PREFIX}/code/\x01"):
        server.client().put_object(Bucket=bucket, Key=key, Body=b"odd")
    done = rla_bucket(server, bucket, "build")
    assert done.stdout.startswith("1 run(s) in the lake")
    assert f"left out: an object whose key is no file name: '{PREFIX}/log//x'" in done.stderr
    rla_bucket(server, bucket, "verify")
