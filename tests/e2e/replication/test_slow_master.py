"""Checkpoints that come faster than the link to the master sends them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.faulty_link import Proxy
from support.replication_lab import Node, Sshd
from support.sharded_folders import RUN, identity, write_part
from support.stamped import stamped
from support.waiting import wait_until

from rla_client.contract.checkpoint.checkpoint_removal import remove_superseded
from rla_client.contract.checkpoint.checkpoint_retention import Retention
from rla_client.contract.sharded_checkpoint.files import WHOLE_FILE
from rla_client.contract.sharded_checkpoint.publish import publish_all
from rla_client.contract.sharded_checkpoint.retention import remove_superseded_sharded

KEEP = Retention(max_to_keep=2)
RANKS = 40


def save_file(here: Path, step: int) -> None:
    stamped(here, step, step, sizes=[6_000_000])
    remove_superseded(here, "checkpoint", "r", KEEP)


def write_sharded(here: Path, step: int) -> None:
    for rank in range(RANKS):
        write_part(here, identity(step, attempt=step, world=RANKS), rank, step)
    publish_all(here)


def save_sharded(here: Path, step: int) -> None:
    write_sharded(here, step)
    remove_superseded_sharded(here, "checkpoint", RUN, KEEP)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("save", "bytes_per_s", "pattern"),
    [
        pytest.param(save_file, 1_000_000, "checkpoint_*.pt", id="file"),
        pytest.param(save_sharded, 40_000, f"checkpoint_*.dcp/{WHOLE_FILE}", id="sharded"),
    ],
)
def test_the_master_gets_a_checkpoint_though_newer_ones_take_its_place_here(
    proxy: Proxy,
    master: Sshd,
    make_node: Callable[..., Node],
    save: Callable[[Path, int], None],
    bytes_per_s: int,
    pattern: str,
) -> None:
    proxy.bytes_per_s = bytes_per_s
    node = make_node(master.remote(port=proxy.port))
    node.run()
    here = node.item("checkpoint")
    node.start()
    there: set[str] = set()
    for step in range(60):
        save(here, step)
        names = [one for one in here.iterdir() if one.name.startswith("checkpoint_")]
        assert len(names) <= 3, "what is kept, and what is on its way"
        time.sleep(2.5)  # what training takes for the next one
        there = {one.as_posix() for one in master.root.rglob(pattern)}
        if len(there) > 1:
            break
    assert len(there) > 1
    wait_until(lambda: len([one for one in here.iterdir() if one.name.startswith("checkpoint_")]) == 2, 60)


@pytest.mark.slow
def test_files_that_wait_keep_nobody_back(master: Sshd, make_node: Callable[..., Node]) -> None:
    """Receipts wait for the shards, and are smaller: there are more of them than are looked at in a turn."""
    node = make_node(master.remote())
    node.run()
    for step in range(8):
        write_sharded(node.item("checkpoint"), step)
    node.start()
    wait_until(lambda: len(list(master.root.rglob(f"checkpoint_*.dcp/{WHOLE_FILE}"))) == 8, 60)
