"""What links, servers and processes do to replication: after it the trees are equal all the same."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from support.faulty_link import Proxy, cut_the_link
from support.prune_lab import wait_clean
from support.replication_lab import (
    ITEM,
    Node,
    Sshd,
    finished_item,
    noted,
    random_bytes,
    same_trees,
    tree,
    written,
)
from support.waiting import wait_until

from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.status import replication_status

MakeNode = Callable[..., Node]


@pytest.mark.slow
def test_cuts_at_random_bytes(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    cut_the_link(make_node(master.remote(port=proxy.port)), master, proxy, 6, 1)


@pytest.mark.slow
def test_a_large_file_goes_on_after_a_cut(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    node = make_node(master.remote(port=proxy.port))
    node.run(state="finished")
    size = 40_000_000
    (node.item("checkpoint") / "c_1.pt").write_bytes(random_bytes(size))
    proxy.cut_after = lambda: -1 if proxy.cuts else 25_000_000  # whichever connection the file goes by
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")
    assert proxy.cuts >= 1
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    assert written(node) <= 1.05 * size + (4 << 20)  # what was in flight at a cut goes again


@pytest.mark.slow
def test_a_partial_file_is_gone_on_with_and_never_left(
    proxy: Proxy, master: Sshd, make_node: MakeNode
) -> None:
    """A file of which a part is there waits behind another one, after a kill."""
    proxy.bytes_per_s = 2_000_000
    node = make_node(master.remote(port=proxy.port))
    node.run()
    (node.item("checkpoint") / "c_2.pt").write_bytes(random_bytes(9_000_000))
    node.start()
    wait_until(lambda: _partly_there(node), 30, "a part being noted in the ledger")
    proxy.bytes_per_s = 20_000  # it is not there before the other one is seen
    other = node.item("checkpoint") / "c_1.pt"
    other.write_bytes(random_bytes(3_000_000))
    os.utime(other, (1_700_000_000, 1_700_000_000))  # it rests, so nothing has to be waited for

    def both_wait() -> bool:
        return bool(replication_status(node.state)["targets"][0]["backlog"]["checkpoint"]["files"] == 2)

    wait_until(both_wait, what="the other one being seen, too")
    node.kill()
    proxy.bytes_per_s = 0
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    assert written(node) <= 11_500_000
    assert not list(master.root.rglob(".rla-tmp*"))


def _partly_there(node: Node) -> bool:
    path = f"file:{node.state}/replicate/ledger.db?mode=ro"
    try:
        with closing(sqlite3.connect(path, uri=True)) as db:
            (acked,) = db.execute("SELECT max(acked) FROM temps").fetchone()
    except sqlite3.OperationalError:
        return False
    return bool(acked and acked > 2_000_000)


@pytest.mark.slow
def test_killed_at_random(node: Node, master: Sshd) -> None:
    chance = random.Random(3)
    finished_item(node, files=60)
    log = node.run()
    for number in range(3):
        began = time.time()
        node.start()
        wait_until(partial(noted, node, began), 60, "the worker")
        end = time.monotonic() + chance.uniform(0.0, 0.6)
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


@pytest.mark.slow
def test_the_server_goes_and_comes_back(node: Node, master: Sshd) -> None:
    finished_item(node)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30)
    wait_clean(node)  # a file is there a moment before it is acknowledged
    master.stop()
    (node.item("results") / "late.bin").write_bytes(b"late")
    announcer = Announcer(node.state)
    announcer.now([str(node.item("log"))])
    announcer.close()

    def retrying() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and targets[0].get("health") == "retrying" and bool(targets[0]["reason"])

    wait_until(retrying, 30, what="status saying that it is retrying")

    def backlog() -> int:
        found = replication_status(node.state)["targets"][0]["backlog"]
        return int(found.get("results", {}).get("files", 0))

    wait_until(lambda: backlog() == 1, 60, what="the late file being found")
    master.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")


@pytest.mark.slow
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

        wait_until(full, 30, what="status saying that the master is full")
        assert not list(master.root.rglob("checkpoint*.pt"))
        subprocess.run(["mount", "-o", "remount,size=60m", str(master.root)], check=True)
        with (log / "progress.csv").open("a") as file:
            file.write("1,2\n")
        wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")
    finally:
        node.kill()
        master.stop()
        subprocess.run(["umount", "-l", str(master.root)], check=True)


@pytest.mark.soak  # the next one, shorter
def test_a_slow_link(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    proxy.bytes_per_s = 20_000
    node = make_node(master.remote(port=proxy.port))
    log = node.run()
    (log / "progress.csv").write_text("a\n" + "1\n" * 20_000)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")


@pytest.mark.slow
@pytest.mark.parametrize("target", ["folder", pytest.param("sftp", marks=pytest.mark.further)])
def test_a_master_whose_disk_is_not_mounted_gets_nothing(
    target: str, tmp_path: Path, request: pytest.FixtureRequest, make_node: MakeNode
) -> None:
    """Its mount point is an empty folder: what went there would count as sent, and be hidden later."""
    if target == "folder":
        root = tmp_path / "mounted"
        root.mkdir()
        node = make_node({"file_transfer_protocol": "folder", "remote_data_root": str(root)})
    else:
        master: Sshd = request.getfixturevalue("master")
        root, node = master.root, make_node(master.remote())
    node.run()
    node.start()
    wait_until(lambda: same_trees(node, root), 30)
    wait_clean(node)
    if target == "sftp":
        node.stop()  # a session that is open goes on
    root.rename(tmp_path / "away")
    root.mkdir()
    node.run(ITEM.replace("000001", "000002"))
    if target == "sftp":
        node.start()
    wait_until(lambda: "it is empty" in str(replication_status(node.state)["targets"]), 30)
    assert not list(root.iterdir())
    (tmp_path / "away").rename(root)  # in the place of the empty one: at no instant is there none
    wait_until(lambda: same_trees(node, root), 60)
