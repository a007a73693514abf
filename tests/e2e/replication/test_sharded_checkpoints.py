"""A sharded checkpoint on the master: never whole before it is, and never any of its parts in the making."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from support.replication_lab import Node
from support.sharded_folders import check_whole, identity, parts_path, write_part
from support.waiting import wait_until

from rla_client.contract.checkpoint.sharded_files import METADATA, WHOLE_FILE
from rla_client.contract.checkpoint.sharded_publish import publish_all, read_whole

RANKS = 60


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
