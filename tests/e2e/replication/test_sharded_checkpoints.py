"""A sharded checkpoint on the master: never whole before it is, and never any of its parts in the making."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from support.killed_child import killed_at
from support.prune_lab import make_settled, wait_clean
from support.replication_lab import ITEM, Node
from support.sharded_folders import RUN, check_whole, identity, parts_path, write_part
from support.waiting import wait_until

from rla_agent.replicate.backend.errors import DeniedError, LinkError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.ledger_rows import PRUNED
from rla_agent.replicate.prune.prune_plan import PruneRules
from rla_agent.replicate.prune.pruner import Pruner
from rla_agent.replicate.transfer.fetch_pruned import fetch_sharded_back
from rla_agent.replicate.transfer.pull import pull
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.checkpoint.pickle_trust import pickle_problem
from rla_client.contract.checkpoint.checkpoint_age import save_time
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.sharded_checkpoint.files import METADATA, WHOLE_FILE
from rla_client.contract.sharded_checkpoint.folder import read_whole
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.retention import remove_superseded_sharded
from rla_client.contract.sharded_checkpoint.status import sharded_status

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


@pytest.mark.further
def test_a_later_save_of_the_same_step_never_mixes_with_the_earlier_one(
    tmp_path: Path, make_node: MakeNode
) -> None:
    node, here, there = node_of(make_node, tmp_path)
    oracle = Oracle(there)
    oracle.start()
    node.start()
    for order in (1, 2, 3):
        save(here, 1, order)
        wait_until(partial(oracle.seen.__contains__, order), 60, f"save {order} on the master")
    oracle.done.set()
    oracle.join(10)
    assert oracle.faults == []
    assert [path.name for path in there.rglob("*.kept-*")] == []


@pytest.mark.slow
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


@pytest.mark.slow
def test_of_one_that_was_dropped_before_all_was_sent_nothing_stays_on_the_master(
    tmp_path: Path, make_node: MakeNode
) -> None:
    node, here, there = node_of(make_node, tmp_path, replicate_ignore=["**/*_1.dcp/__7_0.distcp"])
    save(here, 1, 1)
    node.start()
    wait_until(lambda: len([*there.glob("checkpoint_1.dcp/__*")]) == RANKS - 1, 60, "the others there")
    save(here, 2, 2)
    remove_superseded_sharded(here, "checkpoint", RUN, Retention(max_to_keep=1))
    wait_until((there / "checkpoint_2.dcp" / WHOLE_FILE).exists, 60, "the later one")
    wait_until(lambda: not (there / "checkpoint_1.dcp").exists(), 60, "the half one going")
    check_whole(there / "checkpoint_2.dcp")


@pytest.mark.slow
def test_one_is_pruned_and_comes_back_as_a_whole_whenever_that_is_killed(
    tmp_path: Path, make_node: MakeNode
) -> None:
    """What is here is never called whole while it is not; at the end all of it has gone, and is back."""
    node, here, there = node_of(make_node, tmp_path)
    node.run(state="finished")
    for step in (1, 2):
        save(here, step, step, world=3)
    node.start()
    wait_until(lambda: all(read_whole(there / f"checkpoint_{step}.dcp") for step in (1, 2)), 60)
    wait_clean(node)
    node.stop()
    make_settled(node)
    path, root = here / "checkpoint_1.dcp", str(node.root)
    with closing(sqlite3.connect(node.state / "replicate" / "ledger.db")) as db:
        (target,) = db.execute("SELECT target FROM databases").fetchone()

    def look_again() -> None:
        """As the worker does with what a killed pruner had claimed, and what is here."""
        with closing(sqlite3.connect(node.state / "replicate" / "ledger.db")) as db:
            query = (
                "SELECT f.folder, f.name, d.path FROM files f JOIN folders d ON d.id = f.folder WHERE state=?"
            )
            for folder, name, at in db.execute(query, (PRUNED,)).fetchall():
                if (node.root / os.fsdecode(at) / os.fsdecode(name)).exists():
                    db.execute("UPDATE files SET state = 0 WHERE folder = ? AND name = ?", (folder, name))
            db.commit()

    def prune() -> None:
        with closing(Pruner(node.state, root, target)) as pruner:
            plan = pruner.plan(PruneRules(older_than_s=1e-9), time.time())
            done = list(pruner.carry_out(plan, FolderSession(str(tmp_path / "master"))))
        assert not [entry for entry in done if entry.stays]

    def fetch() -> None:
        fetch_sharded_back(node.state, path, str(node.config))

    for work in (prune, fetch):
        calls = 0
        while killed_at(calls, work):
            calls += 3
            look_again()
            if read_whole(path) is not None:
                check_whole(path)
            (status, _) = sharded_status(here)
            assert (status.step, status.whole, status.order) == (1, True, 1)
        assert calls > 20
        (status, _) = sharded_status(here)
        assert status.pruned is (work is prune)
        assert save_time(here, path.name, 1).order == 1
        assert len(list(path.glob("__*"))) == (0 if work is prune else 3)
    check_whole(path)
    check_whole(here / "checkpoint_2.dcp")
    node.start()
    wait_clean(node)
    check_whole(there / "checkpoint_1.dcp")


class Cut(FolderSession):
    """A link that breaks after so many reads, and at a later write than the first; writes may be refused."""

    def __init__(self, root: Path, left: int, change: Callable[[], object], change_at: int) -> None:
        super().__init__(str(root))
        self.left, self.change, self.change_at = left, change, change_at

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise LinkError("read", path, "cut")
        if self.left == self.change_at:
            self.change()
        return super().read(path, offset, count)

    def put_many(self, files: Sequence[SmallFile]) -> list[RemoteStat | Exception]:
        self.left -= 1
        if self.left < 0:
            raise LinkError("write", b"", "cut")
        done = super().put_many(files[: len(files) if self.left > 1 else self.left + 1])
        return [*done, *(DeniedError("write", file.path, "", "") for file in files[len(done) :])]


@pytest.mark.parametrize("way", ["pull", "push"])
def test_what_is_copied_by_hand_is_whole_or_not_there(tmp_path: Path, way: str) -> None:
    """Each copy is cut off at a random place; meanwhile later saves take the place of earlier ones."""
    source, target = tmp_path / "a", tmp_path / "b"
    here, there = (root / "checkpoint" / ITEM for root in (source, target))
    for folder in (here, there):
        folder.mkdir(parents=True)
    chance, seen = random.Random(1), set()

    def copy(session: FolderSession) -> list[str]:
        if way == "pull":
            return pull(session, str(target), ItemSelection()).failed
        return push(session, str(source), ItemSelection()).failed

    def save_at(order: int) -> None:
        save(here, 1, order, world=5)
        for path in (here / "checkpoint_1.dcp").rglob("*"):  # a copy is known by size and second
            os.utime(path, (10**9 + order, 10**9 + order))

    remote = source if way == "pull" else target
    for order in range(1, 61, 2):
        save_at(order)
        left, change_at = chance.randrange(20 if way == "pull" else 40), chance.randrange(-4, 12)
        with suppress(LinkError):
            copy(Cut(remote, left, partial(save_at, order + 1), change_at))
        if read_whole(there / "checkpoint_1.dcp") is not None:
            seen.add(check_whole(there / "checkpoint_1.dcp"))
    assert 3 < len(seen) < 30
    assert copy(FolderSession(str(remote))) == []
    assert check_whole(there / "checkpoint_1.dcp") == check_whole(here / "checkpoint_1.dcp")
    if way == "pull":
        assert pickle_problem(there / "checkpoint_1.dcp/__0_0.distcp") == "it came from another machine"
