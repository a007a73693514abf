"""A bucket as the master of a real replicator: all of it arrives, once, whatever the store does."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.bucket_lab import BucketPath, S3Server, opened, remote
from support.faulty_store import FaultyStore
from support.prune_lab import wait_clean
from support.replication_lab import HOST, ITEM, Node, finished_item, items_only, random_bytes, tree
from support.waiting import wait_until

from rla_agent.replicate import command_markers, fleet, registry
from rla_agent.replicate.master_trash import move_to_trash, restore
from rla_agent.replicate.repair import repair
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.tombstones import is_buried
from rla_agent.replicate.transfer.pull import pull
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.verify import Difference, verify_ledger
from rla_client.contract.layout import DEFAULT_LOG_TYPES

PREFIX = "some/prefix/"
pytestmark = pytest.mark.usefixtures("bucket_keys")


@pytest.fixture
def store(server: S3Server) -> Iterator[FaultyStore]:
    made = FaultyStore(server.port)
    yield made
    made.close()


@pytest.fixture
def node(server: S3Server, bucket: str, store: FaultyStore, tmp_path: Path) -> Iterator[Node]:
    setting = remote(server, bucket, endpoint=store.endpoint, append_every_s=0.5)
    made = Node(tmp_path / "node", setting)
    registry.add(made.state, made.root, made.config)
    yield made
    made.kill()


def objects(server: S3Server, bucket: str) -> dict[str, bytes]:
    """What another program finds there, parts, status and trash aside."""
    client = server.client()
    return {
        key.removeprefix(PREFIX): client.get_object(Bucket=bucket, Key=key)["Body"].read()
        for key in BucketPath(server, bucket).objects()
        if not key.startswith(PREFIX + ".rla") and "/.rla-parts/" not in key
    }


def wait_same(node: Node, server: S3Server, bucket: str, folder: Path, timeout_s: float = 60) -> None:
    """Until what `rla pull` brings is what lies here."""
    differ = "never looked"

    def same() -> bool:
        nonlocal differ
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        session = opened(server, bucket)
        tally = pull(session, str(folder), ItemSelection())
        session.close()
        here, there = items_only(tree(node.root)), items_only(tree(folder))
        names = {path for path in here.keys() | there.keys() if here.get(path) != there.get(path)}
        differ = f"trees differ: {sorted(names)}; {tally.failed}; {node.log()[-2000:]}"
        time.sleep(0.3)
        return not names and not tally.failed

    wait_until(same, timeout_s, lambda: differ)


def faults_of(node: Node, server: S3Server, bucket: str) -> tuple[int, list[Difference]]:
    session = opened(server, bucket)
    path = node.state / "replicate" / "ledger.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        found = verify_ledger(session, db, 1, sizes=False)
    session.close()
    return found


@pytest.mark.slow
def test_a_run_arrives_grows_and_is_plain_objects_at_its_end(
    node: Node, server: S3Server, bucket: str, tmp_path: Path
) -> None:
    finished_item(node)
    other = ITEM.replace("000001", "000002")
    log = node.run(other)
    paths = [log / "progress.csv", log / "log.txt"]
    for path in paths:
        path.write_text(f"begin,{path.name}\n")
    node.start()
    root = BucketPath(server, bucket)
    there = [root / str(path.relative_to(node.root)) for path in paths]
    wait_until(lambda: all(path.exists() for path in there), 30, "files that can be appended to")
    for turn in range(12):
        for path in paths:
            with path.open("a") as file:
                file.write(f"{turn},{path.name}\n")
        time.sleep(0.4)
    wait_until(root.parts, 20, "something that was appended")
    wait_same(node, server, bucket, tmp_path / "laptop")
    node.run(other, state="finished")
    sums = root / "log" / other / "SHA256SUMS"
    wait_until(sums.exists, 30, lambda: f"the sums; {node.log()[-2000:]}")
    wait_same(node, server, bucket, tmp_path / "laptop")
    wait_until(lambda: not root.parts(), 30, lambda: f"the end of {root.parts()}; {node.log()[-2000:]}")

    def here() -> dict[str, bytes]:
        return {path: (node.root / path).read_bytes() for path in items_only(tree(node.root))}

    wait_until(
        lambda: objects(server, bucket) == here(), 30, lambda: f"the same objects; {node.log()[-2000:]}"
    )
    # a file is on the master a moment before it is in the ledger, and is not counted while it is sent again
    found: list[tuple[int, list[Difference]]] = []

    def all_verified() -> bool:
        found.append(faults_of(node, server, bucket))
        return found[-1] == (len(here()), [])

    wait_until(all_verified, 30, lambda: f"all files verified: {found[-3:]}; {node.log()[-2000:]}")
    session = opened(server, bucket)
    assert [machine["host"] for machine in fleet.machines(session)] == [HOST]
    session.close()
    assert node.stop() == 0
    assert "Traceback" not in node.log()


@pytest.mark.slow
def test_what_the_agent_sent_is_what_the_lake_of_the_bucket_holds(
    node: Node, server: S3Server, bucket: str
) -> None:
    pytest.importorskip("pyarrow")
    from rla_client.database.lake.bucket_build import build_bucket
    from rla_client.database.lake.bucket_lake import opened
    from rla_client.database.lake.bucket_verify import verify_bucket

    finished_item(node)
    node.start()
    sums = BucketPath(server, bucket) / "log" / ITEM / "SHA256SUMS"
    wait_until(sums.exists, 30, lambda: f"the sums; {node.log()[-2000:]}")
    wait_clean(node)
    assert node.stop() == 0
    at = (f"s3://{bucket}/{PREFIX}", server.endpoint)
    with opened(*at) as lake:
        built = build_bucket(lake, time.time())
        assert built is not None
        assert (built.runs, built.problems) == (1, [])
    with opened(*at) as lake:
        found = verify_bucket(lake, time.time())
    assert (found.checked, found.changed, found.wrong, found.broken) == (1, 0, [], [])


@pytest.mark.further
@pytest.mark.slow
def test_a_file_too_large_for_a_batch_is_not_kept_waiting_by_one_that_grows_all_the_time(
    server: S3Server, bucket: str, tmp_path: Path
) -> None:
    node = Node(tmp_path / "node", remote(server, bucket, append_every_s=2.0, connections=1))
    registry.add(node.state, node.root, node.config)
    log = node.run(ITEM.replace("000001", "000002"))
    small, large = log / "progress.csv", log / "log.txt"
    small.write_text("begin\n")
    large.write_bytes(b"line\n" * 200_000)
    node.start()
    try:
        small_there, large_there = (
            BucketPath(server, bucket) / str(path.relative_to(node.root)) for path in (small, large)
        )
        wait_until(lambda: small_there.exists() and large_there.exists(), 30, "both files")

        session = opened(server, bucket)

        def grown(path: Path, upto: int) -> bool:
            with small.open("a") as file:
                file.write("row\n")
            there = session.stat(os.fsencode(path.relative_to(node.root)))
            return there is not None and there.size >= upto

        wait_until(lambda: grown(small, len("begin\nrow\n")), 20, "the first row")
        with large.open("ab") as file:
            file.write(b"more\n" * 1_000_000)  # larger than a batch, beside a row it never fits into one
        whole = large.stat().st_size
        wait_until(lambda: grown(large, whole), 20, lambda: f"the large file; {node.log()[-2000:]}")
        session.close()
        assert large_there.read_bytes() == large.read_bytes()
    finally:
        node.kill()


@pytest.mark.slow
def test_a_restart_sends_nothing(node: Node, server: S3Server, bucket: str, store: FaultyStore) -> None:
    finished_item(node)
    node.start()
    root = BucketPath(server, bucket)
    wait_until((root / "log" / ITEM / "SHA256SUMS").exists, 30, "the sums")
    wait_clean(node)
    assert node.stop() == 0
    store.requests.clear()
    node.start()
    (node.item("tmp_data") / "new").write_bytes(b"what the scan finds, and so has looked at the rest")

    def sent() -> list[str]:
        return [path for _, method, path in store.requests if method == "PUT" and "/.rla-fleet/" not in path]

    wait_until(sent, 20, "the new file")
    wait_clean(node)
    assert node.stop() == 0
    assert {path.rpartition("/")[2].partition("?")[0] for path in sent()} <= {"new", "SHA256SUMS"}, sent()


@pytest.mark.further
@pytest.mark.slow
def test_push_and_the_trash(node: Node, server: S3Server, bucket: str, tmp_path: Path) -> None:
    finished_item(node)
    session = opened(server, bucket)
    before = items_only(tree(node.root))
    tally = push(session, str(node.root), ItemSelection())
    assert (tally.files, tally.failed) == (len(before), [])
    again = push(session, str(node.root), ItemSelection())
    assert (again.files, again.same) == (0, len(before))
    entry = move_to_trash(session, [ITEM], DEFAULT_LOG_TYPES, {}, time.time())
    assert not any(ITEM in path for path in objects(server, bucket))
    assert is_buried(session, f"log/{ITEM}".encode())
    node.start()
    parked = f"log/{ITEM}"
    wait_until(lambda: replication_status(node.state)["targets"], 20, "the worker's first look")
    wait_clean(node)
    assert not any(parked in path for path in objects(server, bucket))
    restore(session, entry.name)
    session.close()
    wait_same(node, server, bucket, tmp_path / "laptop")
    assert not [key for key in BucketPath(server, bucket).objects() if "/.rla/trash/" in key]


def damage(server: S3Server, bucket: str, count: int, seed: int = 0) -> set[str]:
    """Flip a bit, cut, or delete `count` results, and leave their metadata; which.

    Not all files of a kind: where nothing of an item is left it counts as moved away.
    """
    chance = random.Random(seed)
    client = server.client()
    paths = sorted(path for path, data in objects(server, bucket).items() if data and path[:3] == "res")
    chosen = chance.sample(paths, count)
    for number, path in enumerate(chosen):
        key = PREFIX + path
        if number % 3 == 2:
            client.delete_object(Bucket=bucket, Key=key)
            continue
        found = client.get_object(Bucket=bucket, Key=key)
        data = bytearray(found["Body"].read())
        at = chance.randrange(len(data))
        if number % 3:
            del data[at:]
        else:
            data[at] ^= 1 << chance.randrange(8)
        client.put_object(Bucket=bucket, Key=key, Body=bytes(data), Metadata=found["Metadata"])
    return set(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.soak)])
def test_verify_finds_every_damage(
    node: Node, server: S3Server, bucket: str, tmp_path: Path, count: int
) -> None:
    folder = node.item("results")
    for number in range(count + count // 10):
        (folder / f"{number}.bin").write_bytes(random_bytes(number % 5000 + 1, number))
    node.run(state="finished")
    node.start()
    wait_until((BucketPath(server, bucket) / "log" / ITEM / "SHA256SUMS").exists, 120, "the sums")
    wait_clean(node)
    damaged = damage(server, bucket, count)
    _, faults = faults_of(node, server, bucket)
    print(f"{len(faults)} of {count} damages found")  # noqa: T201
    assert {fault.path for fault in faults} == damaged
    with closing(sqlite3.connect(node.state / "replicate" / "ledger.db", timeout=10)) as db:
        assert repair(db, faults) == count
    command_markers.ask_retry(node.state)
    there = {PREFIX + path for path in damaged}
    wait_until(lambda: there <= set(BucketPath(server, bucket).objects()), 120, "fixed copies")
    wait_clean(node)
    assert faults_of(node, server, bucket)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.soak)])
def test_a_store_that_fails_loses_and_doubles_nothing(
    node: Node, server: S3Server, bucket: str, store: FaultyStore, tmp_path: Path, count: int
) -> None:
    """Rows come, files are rewritten, large ones sent while requests are cut, delayed, refused, halved."""
    chance = random.Random(count)
    finished_item(node)
    log = node.run()
    rows = log / "progress.csv"
    rows.write_text("number,text\n")
    node.start()
    wait_until(lambda: store.requests, 20, "the first request")
    store.often(0.15, seed=count)
    written = 0
    while sum(store.faults.values()) < count:
        with rows.open("a") as file, (log / "log.txt").open("a") as text:
            for _ in range(chance.randrange(1, 200)):
                file.write(f'{written},"{"x" * (written % 97)}"\n')
                text.write(f"line {written}\n")
                written += 1
        big = node.item("results") / f"big{chance.randrange(5)}.bin"
        temp = big.with_name(".rla-tmp-big")
        temp.write_bytes(random_bytes(700_001 * chance.randrange(1, 4), written))
        temp.replace(big)
        small = node.item("tmp_data") / f"small{chance.randrange(9)}"
        small.write_bytes(random_bytes(chance.randrange(60_000), written))
        command_markers.ask_retry(node.state)  # a long row of faults has a long backoff
        time.sleep(0.1)
    faults = sum(store.faults.values())
    store.fault = lambda *_: None
    node.run(state="finished")
    command_markers.ask_retry(node.state)
    root = BucketPath(server, bucket)
    wait_until((log / "SHA256SUMS").exists, 120, lambda: f"the sums; {node.log()[-3000:]}")
    wait_same(node, server, bucket, tmp_path / "laptop", 120)
    found = (tmp_path / "laptop" / rows.relative_to(node.root)).read_text().splitlines()
    assert [line.partition(",")[0] for line in found[1:]] == [str(number) for number in range(written)]
    lines = (tmp_path / "laptop" / log.relative_to(node.root) / "log.txt").read_text().splitlines()
    assert lines == [f"line {number}" for number in range(written)]
    assert hashlib.sha256(objects(server, bucket)[str(rows.relative_to(node.root))]).digest() == (
        hashlib.sha256(rows.read_bytes()).digest()
    )
    kept = [path for path in objects(server, bucket) if ".kept-" in path]
    wait_clean(node)
    left = len(root.parts())
    print(f"{faults} faults ({dict(store.faults)}), {written} rows, {left} parts left, kept {kept}")  # noqa: T201
    assert kept == []
    assert faults_of(node, server, bucket)[1] == []
    assert "Traceback" not in node.log()


@pytest.mark.slow
def test_without_the_library_replication_waits_and_says_why(
    server: S3Server, bucket: str, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server, bucket
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "find = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'obstore' else find(name, *more)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finished_item(node)
    node.start()

    def blocked() -> str:
        return json.dumps(replication_status(node.state)["targets"])

    wait_until(lambda: "pip install 'rla-agent[bucket]'" in blocked(), 20, blocked)
    assert node.stop() == 0
