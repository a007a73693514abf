"""The master's disk is unmounted, or an item's folder is away for a while: nothing is missing afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.prune_lab import wait_clean
from support.replication_lab import ITEM, Node, Sshd, finished_item, noted, same_trees, tree
from support.waiting import TIME_FACTOR, wait_until

from rla_agent.replicate import command_markers
from rla_agent.replicate.problems import attention
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.worker import database
from rla_agent.replicate.worker.worker import Replicator

OTHER = ITEM.replace("000001", "000002")


@contextmanager
def unmounted(master: Sshd) -> Iterator[Path]:
    """Under the same name lies an empty folder, as where a disk was unmounted: for SFTP it is the same."""
    away = master.root.with_name("disk")
    master.root.rename(away)
    master.root.mkdir()
    try:
        yield master.root
    finally:
        master.root.rmdir()  # nothing may have been written into it
        away.rename(master.root)


@pytest.fixture
def sent(node: Node, master: Sshd) -> Node:
    """A node that has sent a run, and whose session is open."""
    finished_item(node)
    node.run(state="running")
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30)
    wait_clean(node)
    return node


def held_up(node: Node) -> bool:
    """Whether status says that the master is empty, and what to do."""
    problems = attention(replication_status(node.state))
    return any("it is empty" in problem["what"] and "mount" in problem["fix"] for problem in problems)


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        "a new file of an item",
        pytest.param("a new run", marks=pytest.mark.further),
        pytest.param("a row", marks=pytest.mark.further),
    ],
)
def test_nothing_is_written_beneath_a_disk_that_is_away(sent: Node, master: Sshd, what: str) -> None:
    with unmounted(master) as empty:
        if what == "a row":
            with (sent.item() / "progress.csv").open("a") as file:
                file.write("1,2\n")
        elif what == "a new run":
            sent.run(OTHER)
        else:
            (sent.item("results") / "new.txt").write_text("new")
        wait_until(lambda: held_up(sent), 20, lambda: str(attention(replication_status(sent.state))))
        for _ in range(3):
            command_markers.ask_retry(sent.state)
            tried_in_vain(sent)
        assert tree(empty) == {}
    command_markers.ask_retry(sent.state)
    wait_until(lambda: same_trees(sent, master.root), 30)
    assert replication_status(sent.state)["parked_files"] == 0


def tried_in_vain(node: Node) -> None:
    """Wait until a retry was taken up, and it stands as before."""
    wait_until(lambda: not (node.state / "replicate" / "retry").exists(), 20, "the retry being taken up")
    since = time.time()
    wait_until(lambda: noted(node, since), 20, "a look at how it stands")
    wait_until(lambda: held_up(node), 20, "it being tried in vain")


class Pump:
    """A worker in this process, so that its periods can be shortened."""

    def __init__(self, node: Node) -> None:
        self.worker = Replicator(node.state, node.host)

    def until(self, condition: Callable[[], object], deadline_s: float, what: str) -> None:
        end = time.monotonic() + deadline_s * TIME_FACTOR
        while not condition():
            assert time.monotonic() < end, what
            more = self.worker.turn(time.monotonic())
            self.worker._wait(0.0 if more else 0.05)


@pytest.fixture
def pump(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pump]:
    monkeypatch.setattr(database, "MOVED_S", 0.2)
    made = Pump(node)
    yield made
    made.worker.close()


def parked(node: Node) -> int:
    return int(replication_status(node.state)["parked_files"])


@pytest.mark.further
def test_an_item_that_is_back_unparks_itself(pump: Pump, node: Node, master: Sshd) -> None:
    finished_item(node)
    pump.until(lambda: same_trees(node, master.root), 30, "all being there")
    there = master.root / "results" / ITEM
    there.rename(master.root / "away")
    for number in range(5):
        (node.item("results") / f"new-{number}.txt").write_text("new")
    pump.until(lambda: parked(node) == 5, 30, "five parked files")
    assert not there.exists()
    (master.root / "away").rename(there)
    pump.until(lambda: parked(node) == 0, 30, "none being parked")
    pump.until(lambda: same_trees(node, master.root), 30, "all being there")


@pytest.mark.further
def test_an_item_that_is_sent_again_is_sent_as_a_whole(pump: Pump, node: Node, master: Sshd) -> None:
    finished_item(node)
    pump.until(lambda: same_trees(node, master.root), 30, "all being there")
    (master.root / "results" / ITEM).rename(master.root / ".rla-gone")
    (node.item("results") / "new.txt").write_text("new")
    pump.until(lambda: parked(node) == 1, 30, "a parked file")
    command_markers.ask_retry(node.state)
    pump.until(lambda: same_trees(node, master.root), 30, "also the files that had not changed")
    assert parked(node) == 0
