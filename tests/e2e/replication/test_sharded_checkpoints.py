"""A sharded checkpoint on the master: never whole before it is, and never any of its parts in the making."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from support.replication_lab import Node
from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part
from support.waiting import wait_until

from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.checkpoint.sharded_files import METADATA, WHOLE_FILE
from rla_client.contract.checkpoint.sharded_publish import publish_all, read_whole
from rla_client.contract.checkpoint.sharded_retention import remove_superseded_sharded

RANKS = 60
MakeNode = Callable[..., Node]


def node_of(make_node: MakeNode, tmp_path: Path, **agent: object) -> tuple[Node, Path, Path]:
    """A node whose master is a folder; the checkpoints of its run here and there."""
    master = tmp_path / "master"
    master.mkdir()
    remote = {"file_transfer_protocol": "folder", "remote_data_root": str(master)}
    node = make_node(remote, agent=agent)
    node.run()
    here = node.item("checkpoint")
    return node, here, master / here.relative_to(node.root)


def save(here: Path, step: int, order: int, world: int = RANKS) -> None:
    for rank in range(world):
        write_part(here, identity(step, attempt=order, world=world), rank, order)
    publish_all(here)


class Oracle(threading.Thread):
    """Whatever the master calls whole must be so, all the time."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.faults: list[str] = []
        self.seen: set[int] = set()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.001):
            for path in self.path.glob("*.dcp"):
                before = read_whole(path)
                if before is None:
                    continue
                try:
                    self.seen.add(check_whole(path))
                except (AssertionError, OSError) as error:
                    if read_whole(path) == before:  # else it was replaced while we looked
                        self.faults.append(f"{path.name}: {error!r}"[:500])


class Watcher(threading.Thread):
    """Looks at the master's checkpoint all the time."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.early: list[str] = []
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.002):
            if (self.path / METADATA).exists():
                shards = list(self.path.glob("__*.distcp"))
                receipts = list(self.path.glob(".rla/shard-*.json"))
                if (len(shards), len(receipts)) != (RANKS, RANKS):
                    self.early.append(f".metadata with {len(shards)} shards, {len(receipts)} receipts")
            whole = read_whole(self.path)
            if whole is not None:
                check_whole(self.path)


def test_what_says_that_it_is_whole_comes_last(tmp_path: Path, make_node: Callable[..., Node]) -> None:
    master = tmp_path / "master"
    master.mkdir()
    node = make_node({"file_transfer_protocol": "folder", "remote_data_root": str(master)})
    node.run()
    here = node.item("checkpoint")
    there = master / here.relative_to(node.root)
    watcher = Watcher(there / "checkpoint_1.dcp")
    watcher.start()
    node.start()
    for rank in range(RANKS):
        write_part(here, identity(1, world=RANKS), rank)
    write_part(here, identity(2, world=2), 0)
    publish_all(here)
    wait_until((there / "checkpoint_1.dcp" / WHOLE_FILE).exists, 60, "the whole checkpoint")
    watcher.done.set()
    watcher.join(10)
    assert watcher.early == []
    assert check_whole(there / "checkpoint_1.dcp") == 1
    assert sorted(path.name for path in there.iterdir()) == ["checkpoint_1.dcp"]
    assert parts_path(here, identity(2, world=2)).is_dir()


def test_a_later_save_of_the_same_step_never_mixes_with_the_earlier_one(
    tmp_path: Path, make_node: MakeNode
) -> None:
    node, here, there = node_of(make_node, tmp_path)
    oracle = Oracle(there)
    oracle.start()
    node.start()
    for order in (1, 2, 3):
        save(here, 1, order)
        wait_until(lambda order=order: order in oracle.seen, 60, f"save {order} on the master")
    oracle.done.set()
    oracle.join(10)
    assert oracle.faults == []
    assert [path.name for path in there.rglob("*.kept-*")] == []


def test_what_retention_drops_goes_from_the_master_where_that_is_asked_for(
    tmp_path: Path, make_node: MakeNode
) -> None:
    node, here, there = node_of(make_node, tmp_path, replicate_retention="mirror")
    oracle = Oracle(there)
    oracle.start()
    node.start()
    for step in (1, 2):
        save(here, step, step)
    wait_until(lambda: {1, 2} <= oracle.seen, 60, "both on the master")
    remove_superseded_sharded(here, "checkpoint", RUN, Retention(max_to_keep=1))
    wait_until(lambda: not (there / "checkpoint_1.dcp").exists(), 60, "the older one going")
    oracle.done.set()
    oracle.join(10)
    assert oracle.faults == []
    check_whole(there / "checkpoint_2.dcp")


def test_of_one_that_was_dropped_before_all_was_sent_nothing_stays_on_the_master(
    tmp_path: Path, make_node: MakeNode
) -> None:
    node, here, there = node_of(make_node, tmp_path, replicate_ignore=["*_1.dcp/__7_0.distcp"])
    save(here, 1, 1)
    node.start()
    wait_until(lambda: len([*there.glob("checkpoint_1.dcp/__*")]) == RANKS - 1, 60, "the others there")
    save(here, 2, 2)
    remove_superseded_sharded(here, "checkpoint", RUN, Retention(max_to_keep=1))
    wait_until((there / "checkpoint_2.dcp" / WHOLE_FILE).exists, 60, "the later one")
    wait_until(lambda: not (there / "checkpoint_1.dcp").exists(), 60, "the half one going")
    check_whole(there / "checkpoint_2.dcp")
