"""The full counts of what may happen between a node and its master (`make soak`).

Each count is split into parts with seeds of their own, each bounded in time and run anew by its name
alone, for example `pytest -m soak tests/e2e/replication/test_soak.py -k 'cuts and part7'`. The quick forms
are in `test_faults` and `test_exact`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.faulty_link import Proxy, cut_the_link
from support.replication_lab import (
    Node,
    Sshd,
    finished_item,
    noted,
    random_bytes,
    same_trees,
    tree,
    wait_same,
    written,
)
from support.waiting import wait_until

from rla_agent.replicate import command_markers
from rla_agent.replicate.status import replication_status

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
MakeNode = Callable[..., Node]
CUTS = 1000
KILLS = 100
PARTS = 10
HOLE_S = 60.0
NOTICED_S = 30.0
ROWS = 10_000


def parts(count: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("part", range(count), ids=lambda part: f"part{part}")


LOOKS = (
    200  # that find half a row in turn: a write that crosses a page shows in steps, but none takes so long
)

READER = (
    f"LOOKS = {LOOKS}"
    """
import json, os, select, sys
rows, folder = map(os.fsencode, sys.argv[1:3])
reads, torn, in_turn, partial = 0, [], 0, []
while not select.select([sys.stdin], [], [], 0.001)[0]:
    try:
        with open(rows, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        continue
    reads += 1
    in_turn = in_turn + 1 if data and (not data.endswith(b"\\n") or data.count(b'"') % 2) else 0
    if in_turn == LOOKS:
        torn.append(f"{len(data)}: {data[-80:]!r}")
    for number in range(4) if reads % 10 == 0 else ():
        try:
            with open(folder + b"/whole%d.bin" % number, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            continue
        if len(data) % 1000 or data.count(data[:1]) != len(data):
            partial.append(f"whole{number}: {len(data)} bytes")
print(json.dumps({"reads": reads, "torn": torn, "partial": partial}))
"""
)


class Watcher:
    """Reads the master all the time, as a plot does, in a process of its own: no row stays half."""

    def __init__(self, rows: Path, results: Path) -> None:
        command = [sys.executable, "-c", READER, str(rows), str(results)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self) -> None:
        """Judge what it saw."""
        if self._process.poll() is not None:
            return
        said, _ = self._process.communicate(timeout=60)
        found = json.loads(said)
        print(f"read {found['reads']} times")  # noqa: T201 - figures of a soak
        assert found["torn"] == []
        assert found["partial"] == []
        assert found["reads"] > 0


@pytest.fixture
def watch(master: Sshd) -> Iterator[Callable[[Node, Path], Watcher]]:
    """Starts a watcher of a node's rows; what it saw is judged at the end."""
    made: list[Watcher] = []

    def start(node: Node, log: Path) -> Watcher:
        results = node.item("results").relative_to(node.root)
        rows = log.relative_to(node.root) / "progress.csv"
        made.append(Watcher(master.root / rows, master.root / results))
        return made[-1]

    yield start
    for watcher in made:
        watcher.end()


def work(node: Node, log: Path, number: int, chance: random.Random) -> None:
    """What a run does in a moment: rows, a file of its own that is replaced, one rewritten in place."""
    with (log / "progress.csv").open("ab") as file:
        file.write(b'%d,"%d"\n' % (number, chance.randrange(10**9)) * chance.randrange(1, 60))
    whole = node.item("results") / f"whole{number % 4}.bin"
    temp = whole.with_name(".rla-tmp-whole")
    temp.write_bytes(bytes([number % 251]) * 1000 * chance.randrange(1, 900))
    temp.replace(whole)
    (node.item("results") / "inplace.dat").write_bytes(random_bytes(chance.randrange(300_000), number))


def all_there(node: Node, master: Sshd, timeout_s: float) -> None:
    """End the run; the trees are equal, nothing is left over."""
    node.run(state="finished")
    command_markers.ask_retry(node.state)
    wait_same(node, master.root, timeout_s)
    wait_until(lambda: not list(master.root.rglob(".rla-tmp*")), 60, "orphan temp files being removed")
    assert not [path for path in tree(master.root) if ".kept-" in path]


@parts(PARTS)
def test_cuts_at_random_bytes(part: int, proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    cut_the_link(make_node(master.remote(port=proxy.port)), master, proxy, CUTS // PARTS, 100 + part)


@parts(PARTS)
def test_killed_at_random(part: int, node: Node, master: Sshd, watch: Callable[..., Watcher]) -> None:
    chance = random.Random(200 + part)
    finished_item(node, files=60)
    log = node.run()
    watch(node, log)
    sending = number = 0
    for _ in range(KILLS // PARTS):
        began = time.time()
        node.start()
        wait_until(partial(noted, node, began), 60, "the worker")
        end = time.monotonic() + chance.uniform(0.0, 0.6)
        while time.monotonic() < end:
            number += 1
            work(node, log, number, chance)
        node.kill()
        sending += bool(list(master.root.rglob(".rla-tmp*")))
    print(f"{KILLS // PARTS} kills, {sending} with a temp file on the master")  # noqa: T201 - figures of a soak
    node.start()
    all_there(node, master, 120)


@parts(2)
def test_the_server_goes_and_comes_back_again_and_again(
    part: int, node: Node, master: Sshd, watch: Callable[..., Watcher]
) -> None:
    chance = random.Random(300 + part)
    finished_item(node)
    log = node.run()
    watch(node, log)
    node.start()
    number = 0
    for _ in range(10):
        for up in (True, False):
            end = time.monotonic() + chance.uniform(0.2, 2.0)
            while time.monotonic() < end:
                number += 1
                work(node, log, number, chance)
            if up:
                master.stop()
            else:
                master.start()
                command_markers.ask_retry(node.state)
    all_there(node, master, 120)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs")
@parts(2)
def test_the_masters_disk_is_full_now_and_then(
    part: int, node: Node, master: Sshd, watch: Callable[..., Watcher]
) -> None:
    chance = random.Random(400 + part)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(master.root)], check=True)
    try:
        finished_item(node)
        log = node.run()
        watcher = watch(node, log)
        node.start()
        ballast = master.root / "ballast"
        number = 0
        wait_until((master.root / log.relative_to(node.root)).exists, 30)
        for _ in range(10):
            time.sleep(chance.uniform(0.0, 0.5))
            _fill(ballast)
            end = time.monotonic() + 60
            while "full" not in reason(node):
                assert time.monotonic() < end, "status does not say that the disk is full"
                number += 1
                work(node, log, number, chance)
            ballast.unlink()
            command_markers.ask_retry(node.state)
            number += 1
            work(node, log, number, chance)
            wait_until(lambda: not reason(node), 60)
        all_there(node, master, 120)
        watcher.end()
    finally:
        node.kill()
        master.stop()
        subprocess.run(["umount", "-l", str(master.root)], check=True)


def reason(node: Node) -> str:
    """Why the node sends nothing now; empty when it does."""
    targets = replication_status(node.state)["targets"]
    return str(targets[0].get("reason", "")) if targets else ""


def _fill(ballast: Path) -> None:
    """Leave no byte free."""
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 20)):
                pass
        except OSError:
            pass
        try:
            while file.write(bytes(4096)):
                pass
        except OSError:
            pass


@pytest.mark.parametrize("when", ["at-rest", "in-a-large-file", "at-login"])
def test_a_black_hole_of_a_minute(
    when: str, proxy: Proxy, master: Sshd, make_node: MakeNode, watch: Callable[..., Watcher]
) -> None:
    node = make_node(master.remote(port=proxy.port))
    log = node.run()
    (log / "progress.csv").write_bytes(b"a\n")
    watch(node, log)
    if when != "at-login":
        node.start()
        wait_until(lambda: same_trees(node, master.root), 30)
    if when == "in-a-large-file":
        proxy.bytes_per_s = 2_000_000
        (node.item("checkpoint") / "c_1.pt").write_bytes(random_bytes(20_000_000))
        wait_until(lambda: list(master.root.rglob("checkpoint/**/.rla-tmp*")), 30)
    proxy.hole = True
    began = time.monotonic()
    if when == "at-login":
        node.start()
    with (log / "progress.csv").open("ab") as file:
        file.write(b"1\n" * 100)

    def noticed() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and targets[0].get("health") == "retrying"

    wait_until(noticed, 60, what="the dead peer being noticed")
    took = time.monotonic() - began
    print(f"noticed after {took:.1f} s")  # noqa: T201 - figures of a soak
    wait_until(lambda: time.monotonic() - began > HOLE_S, HOLE_S + 10)
    proxy.hole, proxy.bytes_per_s = False, 0
    command_markers.ask_retry(node.state)
    all_there(node, master, 120)
    assert took <= NOTICED_S + (2.0 if when == "at-login" else 0.0)  # the process starts, too


def test_a_kilobyte_a_second(proxy: Proxy, master: Sshd, make_node: MakeNode) -> None:
    """Some minutes of a 1 kB/s link, new files and rows for an old one: no timeout, no byte twice."""
    node = make_node(master.remote(port=proxy.port))
    log = node.run()
    (log / "progress.csv").write_bytes(b"a\n")
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30)
    proxy.bytes_per_s = 1000
    (node.item("results") / "x.bin").write_bytes(random_bytes(40_000))
    with (log / "progress.csv").open("ab") as file:
        file.write(b"12345\n" * 15_000)
    (node.item("results") / "y.bin").write_bytes(random_bytes(160_000))
    node.run(state="finished")
    wait_same(node, master.root, 900)
    assert "no answer" not in node.log()
    assert written(node) <= 1.05 * 290_000 + 10_000


def test_nothing_of_a_long_run_is_sent_twice(node: Node, master: Sshd, watch: Callable[..., Watcher]) -> None:
    """10,000 rows, as they come in two minutes, all read on the master all the time."""
    log = node.run()
    path = log / "progress.csv"
    path.write_bytes(b"number,text\n")
    node.start()
    watch(node, log)
    began = time.monotonic()
    with path.open("ab", buffering=0) as file:
        for number in range(ROWS):
            file.write(b'%d,"%s"\n' % (number, b"x" * (number % 97)))
            due = began + (number + 1) * 120 / ROWS
            time.sleep(max(0.0, due - time.monotonic()))
    node.run(state="finished")
    wait_same(node, master.root, 60)
    wait_until(lambda: list(master.root.rglob("SHA256SUMS")), 30, "the sums")
    wait_same(node, master.root, 60)
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    payload = sum(file.stat().st_size for file in log.iterdir())
    print(f"{written(node)} bytes written for {payload}: {written(node) / payload:.3f}")  # noqa: T201 - figures of a soak
    assert written(node) <= 1.05 * payload
