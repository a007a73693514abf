"""What links, servers and processes do to replication: after it the trees are equal all the same."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections.abc import Callable

import pytest
from replication_lab import (
    Node,
    Proxy,
    Sshd,
    finished_item,
    noted,
    random_bytes,
    same_trees,
    tree,
    wait_same,
    wait_until,
    written,
)

from rla_agent.replicate import Announcer, registry, replication_status

MakeNode = Callable[..., Node]


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
