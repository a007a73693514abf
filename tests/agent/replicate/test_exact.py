"""The master's tree equals the local one after every fault that links, servers and processes have."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from replication_lab import ITEM, Node, Proxy, Sshd, random_bytes, same_trees, tree, wait_same, wait_until

from rla_agent.replicate import Announcer, registry, replication_status

MakeNode = Callable[..., Node]


def finished_item(node: Node, files: int = 30) -> int:
    """A run's worth of files of all sorts; their bytes."""
    for number in range(files):
        folder = node.item(("results", "code", "tmp_data")[number % 3]) / f"sub{number % 4}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.bin").write_bytes(random_bytes(number * 997, number))
    (node.item("checkpoint") / "checkpoint_100.pt").write_bytes(random_bytes(5_000_000))
    log = node.run(state="finished")
    (log / "progress.csv").write_text("a,b\n" + "".join(f"{n},{n * n}\n" for n in range(1000)))
    archive = node.root / "archive_tester" / f"{ITEM}.json"
    archive.parent.mkdir(parents=True)
    archive.write_text("{}")
    return sum(path.stat().st_size for path in node.root.rglob("*") if path.is_file())


def written(node: Node) -> int:
    return sum(target.get("written_bytes", 0) for target in replication_status(node.state)["targets"])


def sent_files(node: Node) -> int:
    return sum(target.get("sent_files", 0) for target in replication_status(node.state)["targets"])


def noted(node: Node, after: float) -> bool:
    """Whether the worker's snapshot is newer than `after`."""
    import json
    import sqlite3

    db = sqlite3.connect(f"file:{node.state}/replicate/ledger.db?mode=ro", uri=True)
    row = db.execute("SELECT value FROM meta WHERE name = 'live'").fetchone()
    db.close()
    return row is not None and json.loads(row[0])["at"] > after


def test_all_kinds_arrive_once_and_a_restart_sends_nothing(node: Node, master: Sshd) -> None:
    size = finished_item(node)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30, "the master's tree being equal")
    wait_until(lambda: list((master.root / "log").rglob("SHA256SUMS")), 20, "the sums")
    wait_until(lambda: same_trees(node, master.root), 10)
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    assert written(node) <= 1.05 * size + 35 * 100 + 8000  # requests' heads, the sums, the status file
    before = {path: os.stat(path).st_mtime_ns for path in (master.root / "log").rglob("*")}
    assert node.stop() == 0
    node.start()
    began = time.time()
    wait_until(lambda: noted(node, began + 2), 20)
    assert sent_files(node) == 0
    assert before == {path: os.stat(path).st_mtime_ns for path in (master.root / "log").rglob("*")}
    assert not list(master.root.rglob(".rla-tmp*"))


def test_rows_are_never_torn_and_never_sent_twice(node: Node, master: Sshd) -> None:
    log = node.run()
    path = log / "progress.csv"
    path.write_text("number,text\n")
    node.start()
    remote = master.root / path.relative_to(node.root)
    wait_until(remote.exists, 20)
    torn: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            data = remote.read_bytes()
            if data and not data.endswith(b"\n"):
                torn.append(b"%d: " % len(data) + data[-80:])
            done.wait(0.001)

    reader = threading.Thread(target=read)
    reader.start()
    with path.open("a", buffering=1) as file:
        for number in range(10_000):
            file.write(f'{number},"{"x" * (number % 97)}"\n')
            if number % 2500 == 2499:
                wait_until(lambda: remote.stat().st_size > file.tell() // 2, 20)
    node.run(state="finished")
    wait_until(lambda: same_trees(node, master.root), 30, "the master's tree being equal")
    done.set()
    reader.join()
    assert torn == []
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    payload = sum(file.stat().st_size for file in log.iterdir())
    assert written(node) <= 1.05 * payload + 5000


def cuts(node: Node, master: Sshd, proxy: Proxy, count: int, seed: int) -> None:
    """Files come, grow, are rewritten and vanish while the link is cut at random bytes."""
    chance = random.Random(seed)
    finished_item(node)
    log = node.run()
    partial: list[str] = []
    stop = threading.Event()

    def look_for_partials() -> None:
        while not stop.is_set():
            for path in master.root.rglob("big*.bin"):
                size = path.stat().st_size
                if size % 700_001:
                    partial.append(f"{path.name}: {size}")
            stop.wait(0.01)

    watcher = threading.Thread(target=look_for_partials)
    watcher.start()
    proxy.cut_after = lambda: int(5000 + 10 ** chance.uniform(2, 6))
    node.start()
    number = 0
    end = time.monotonic() + 30 + count * 2
    while proxy.cuts < count and time.monotonic() < end:
        number += 1
        with (log / "progress.csv").open("a") as file:
            file.write(f"{number},{chance.random()}\n" * chance.randrange(1, 200))
        big = node.item("results") / f"big{number % 5}.bin"
        temp = big.with_name(".rla-tmp-big")
        temp.write_bytes(random_bytes(700_001 * chance.randrange(1, 4), number))
        temp.replace(big)
        if number % 7 == 0:
            (node.item("tmp_data") / f"inplace{number % 3}").write_bytes(
                random_bytes(chance.randrange(60_000), number)
            )
        registry.ask_retry(node.state)  # a long row of cuts has a long backoff
        time.sleep(0.05)
    assert proxy.cuts >= count
    proxy.cut_after = None
    node.run(state="finished")
    registry.ask_retry(node.state)
    wait_same(node, master.root, 90)
    stop.set()
    watcher.join()
    assert partial == []
    wait_until(lambda: not list(master.root.rglob(".rla-tmp*")), 30, "orphan temp files being removed")


@pytest.mark.timeout(300)
def test_cuts_at_random_bytes(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    cuts(make_node(master.remote(port=proxy.port)), master, proxy, 6, 1)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_thousand_cuts(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    cuts(
        make_node(master.remote(port=proxy.port)),
        master,
        proxy,
        int(os.environ.get("RLA_SOAK_CUTS", "1000")),
        2,
    )


def test_a_large_file_goes_on_after_a_cut(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    node = make_node(master.remote(port=proxy.port))
    node.run(state="finished")
    size = 40_000_000
    (node.item("checkpoint") / "c_1.pt").write_bytes(random_bytes(size))
    budgets = iter([25_000_000, 25_000_000])
    proxy.cut_after = lambda: next(budgets, -1)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")
    assert proxy.cuts >= 1
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    assert written(node) <= 1.05 * size + (4 << 20)  # what was in flight at a cut goes again


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.timeout(600)
def test_killed_at_random(node: Node, master: Sshd, kills: int) -> None:
    chance = random.Random(3)
    finished_item(node, files=60)
    log = node.run()
    for number in range(kills):
        node.start()
        end = time.monotonic() + chance.uniform(0.6, 1.5)
        while time.monotonic() < end:
            with (log / "progress.csv").open("a") as file:
                file.write(f"{number},{chance.random()}\n" * 20)
            (node.item("results") / "again.bin").write_bytes(random_bytes(chance.randrange(300_000), number))
            time.sleep(0.02)
        node.kill()
    node.run(state="finished")
    node.start()
    wait_until(lambda: same_trees(node, master.root), 40, "the master's tree being equal")
    wait_until(lambda: not list(master.root.rglob(".rla-tmp*")), 20, "orphan temp files being removed")
    assert not [path for path in tree(master.root) if ".kept-" in path]


def test_the_server_goes_and_comes_back(node: Node, master: Sshd) -> None:
    finished_item(node)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30)
    master.stop()
    (node.item("results") / "late.bin").write_bytes(b"late")
    announcer = Announcer(node.state)
    announcer.now([str(node.item("log"))])
    announcer.close()

    def retrying() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and targets[0].get("health") == "retrying" and bool(targets[0]["reason"])

    wait_until(retrying, 30, "status saying that it is retrying")
    assert replication_status(node.state)["targets"][0]["backlog"]["results"]["files"] == 1
    master.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")


@pytest.mark.soak  # seven seconds
def test_a_lost_ledger_sends_nothing_again(node: Node, master: Sshd) -> None:
    finished_item(node)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30)
    wait_until(lambda: list((master.root / "log").rglob("SHA256SUMS")), 20, "the sums")
    assert node.stop() == 0
    for path in (node.state / "replicate").glob("ledger.db*"):
        path.unlink()
    before = {master.root / path: os.stat(master.root / path).st_ino for path in tree(master.root)}
    node.start()

    def all_known() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and targets[0].get("sent_files", 0) >= len(before) and not targets[0]["backlog"]

    wait_until(all_known, 30)
    assert {path: os.stat(path).st_ino for path in before} == before
    assert same_trees(node, master.root)
    assert not [path for path in tree(master.root) if ".kept-" in path]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs")
def test_a_full_master(node: Node, master: Sshd) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(master.root)], check=True)
    try:
        finished_item(node)  # 5.4 MB
        log = node.run()
        node.start()

        def full() -> bool:
            targets = replication_status(node.state)["targets"]
            return bool(targets) and "full" in targets[0].get("reason", "")

        wait_until(full, 30, "status saying that the master is full")
        assert not list(master.root.rglob("checkpoint*.pt"))
        subprocess.run(["mount", "-o", "remount,size=60m", str(master.root)], check=True)
        with (log / "progress.csv").open("a") as file:
            file.write("1,2\n")
        wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")
    finally:
        node.kill()
        master.stop()
        subprocess.run(["umount", "-l", str(master.root)], check=True)


@pytest.mark.soak  # half a minute
def test_a_black_hole_is_noticed(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    node = make_node(master.remote(port=proxy.port))
    log = node.run()
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    proxy.hole = True
    with (log / "progress.csv").open("a") as file:
        file.write("a\n1\n")
    began = time.monotonic()

    def noticed() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and targets[0].get("health") == "retrying"

    wait_until(noticed, 40, "the dead peer being noticed")
    assert time.monotonic() - began <= 33
    proxy.hole = False
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")


@pytest.mark.soak  # the next one, shorter
def test_a_slow_link(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    proxy.bytes_per_s = 20_000
    node = make_node(master.remote(port=proxy.port))
    log = node.run()
    (log / "progress.csv").write_text("a\n" + "1\n" * 20_000)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_kilobyte_a_second(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    proxy.bytes_per_s = 1000
    node = make_node(master.remote(port=proxy.port))
    log = node.run()
    (log / "progress.csv").write_text("a\n" + "1\n" * 50_000)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 600, "the master's tree being equal")


def test_an_ended_run_carries_sums_that_check(node: Node, master: Sshd) -> None:
    log = node.run()
    (log / "progress.csv").write_text("a\n1\n")
    (log / "log.txt").write_text("0123456789" * 1000 + "\n")
    (node.item("results") / "odd\nname").write_bytes(b"odd")
    (node.item("checkpoint") / "c_1.pt").write_bytes(random_bytes(300_000))
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    with (log / "progress.csv").open("a") as file:
        file.write("2\n")
    wait_until(lambda: same_trees(node, master.root), 20)
    # rewritten in place behind our back, same size, in the middle: only reading all of it shows that
    with (log / "log.txt").open("r+b") as file:
        file.seek(5000)
        file.write(b"XXXX")
        file.seek(0, os.SEEK_END)
        file.write(b"more\n")
    wait_until(lambda: (master.root / "log" / ITEM / "log.txt").stat().st_size == 10_006, 20)
    node.run(state="finished")
    there = master.root / "log" / ITEM
    wait_until((there / "SHA256SUMS").exists, 30, "the sums on the master")
    wait_until(lambda: same_trees(node, master.root), 20)
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=there, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count(": OK") == 5


def test_superseded_checkpoints_go_only_where_mirror_is_asked_for(master: Sshd, make_node: MakeNode) -> None:
    nodes = {}
    for retention in ("keep", "mirror"):
        root = master.root / retention
        root.mkdir()
        nodes[retention] = make_node(
            master.remote(remote_data_root=str(root)), retention, agent={"replicate_retention": retention}
        )
    for node in nodes.values():
        node.run()
        for name in ("c_1.pt", "c_2.pt", "mine.bin"):
            (node.item("checkpoint") / name).write_bytes(b"x" * 100)
        node.start()
    for retention, node in nodes.items():
        wait_until(lambda node=node, retention=retention: same_trees(node, master.root / retention), 20)
        for name in ("c_1.pt", "mine.bin"):
            (node.item("checkpoint") / name).unlink()
    there = {retention: master.root / retention / "checkpoint" / ITEM for retention in nodes}
    wait_until(lambda: not (there["mirror"] / "c_1.pt").exists(), 20, "the superseded checkpoint going")
    assert sorted(path.name for path in there["mirror"].iterdir()) == ["c_2.pt", "mine.bin"]
    assert sorted(path.name for path in there["keep"].iterdir()) == ["c_1.pt", "c_2.pt", "mine.bin"]


def test_each_machine_leaves_its_status_on_the_master(node: Node, master: Sshd) -> None:
    from rla_agent.replicate import fleet
    from rla_agent.replicate.folder import FolderSession

    node.run()
    node.start()
    session = FolderSession(str(master.root))
    (machine,) = wait_until(lambda: fleet.read(session), 20, "the status file")
    assert machine["host"] == node.host
    assert machine["age_s"] < 60
    (master.root / ".rla-fleet" / "evil.json").write_text('{"host": "\\u001b[2J", "runs": [3]}')
    (master.root / ".rla-fleet" / "broken.json").write_text("{")
    text = fleet.as_text(fleet.read(session))
    assert node.host in text
    assert "\x1b" not in text
