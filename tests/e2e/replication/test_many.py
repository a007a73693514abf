"""Many machines and one master."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.replication_lab import ITEM, Node, Sshd, items_only, tree
from support.waiting import wait_until

from rla_agent.replicate import fleet
from rla_agent.replicate.backend.folder import FolderSession

COUNT = 20


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_twenty_nodes_start_together(master: Sshd, make_node: Callable[..., Node]) -> None:
    """The master's MaxStartups is sshd's default, 10:30:100; all begin within a moment."""
    nodes = []
    for number in range(COUNT):
        node = make_node(master.remote(), f"node-{number}", host=f"node-{number}")
        item = ITEM.replace("000001", f"{number:06d}")
        (node.run(item) / "progress.csv").write_text("a\n" + f"{number}\n" * 100)
        for name in range(20):
            (node.item("results", item) / f"{name}.bin").write_bytes(bytes([name]) * 5000)
        nodes.append(node)
    for node in nodes:
        node.start()
    expected = {path: digest for node in nodes for path, digest in items_only(tree(node.root)).items()}
    wait_until(lambda: items_only(tree(master.root)) == expected, 240, "all trees on the master")
    session = FolderSession(str(master.root))
    wait_until(lambda: len(fleet.machines(session)) == COUNT, 60, "all machines in the fleet")
