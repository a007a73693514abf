"""The master is full while small files are sent in batches: nothing that is not whole has a final name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.replication_lab import Node, Sshd, items_only, random_bytes, same_trees, tree
from support.waiting import wait_until

from rla_agent.replicate.registry import register
from rla_agent.replicate.status import replication_status

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root"),
]
FILES, FILE_BYTES = 300, 20_000


@pytest.mark.slow
def test_small_files_on_a_full_master(tmp_path: Path) -> None:
    master = Sshd(tmp_path / "sshd")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "rla-test", str(master.root)], check=True)
    node = Node(tmp_path / "node", master.start().remote())
    try:
        register(node.state, node.root, node.config)
        for number in range(FILES):
            (node.item("results") / f"{number}.bin").write_bytes(random_bytes(FILE_BYTES, number))
        node.run()
        node.start()

        def full() -> bool:
            targets = replication_status(node.state)["targets"]
            return bool(targets) and "full" in targets[0].get("reason", "")

        def check() -> None:
            here = items_only(tree(node.root))
            there = items_only(tree(master.root, (".rla-tmp",)))
            assert there.items() <= here.items(), "a file that is not whole has a final name"

        wait_until(full, 30, "status saying that the master is full")
        check()
        subprocess.run(["mount", "-o", "remount,size=60m", str(master.root)], check=True)
        wait_until(lambda: same_trees(node, master.root), 60, "the master's tree being equal")
    finally:
        node.kill()
        master.stop()
        subprocess.run(["umount", "-l", str(master.root)], check=True)


@pytest.mark.parametrize("protocol", ["folder", "sftp"])
def test_a_master_that_is_read_only_for_a_while(tmp_path: Path, protocol: str) -> None:
    """As after an error of its disk, until somebody mounts it anew: nothing is parked, all goes by itself."""
    server = Sshd(tmp_path / "sshd")
    root = server.root
    subprocess.run(["mount", "-t", "tmpfs", "rla-test", str(root)], check=True)
    remote: dict[str, object] = {"file_transfer_protocol": "folder", "remote_data_root": str(root)}
    node = Node(tmp_path / "node", remote if protocol == "folder" else server.start().remote())
    try:
        register(node.state, node.root, node.config)
        (node.item("results") / "first.bin").write_bytes(b"1")
        node.run()
        node.start()
        wait_until(lambda: same_trees(node, root), 30, "the first file being there")
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        for number in range(5):
            (node.item("results") / f"{number}.bin").write_bytes(b"2")

        def told() -> bool:
            found = replication_status(node.state)
            return bool(found["targets"][0].get("reason") or found["targets"][0].get("problem"))

        wait_until(told, 30, "status saying that it takes nothing")
        assert replication_status(node.state)["parked_files"] == 0
        subprocess.run(["mount", "-o", "remount,rw", str(root)], check=True)
        wait_until(lambda: same_trees(node, root), 60, "the files going by themselves")
    finally:
        node.kill()
        server.stop()
        subprocess.run(["umount", "-l", str(root)], check=True)
