"""The status files that machines leave on their master."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from support.replication_lab import ITEM, Node, Sshd
from support.waiting import wait_until

from rla_agent.replicate import fleet
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.registry import register
from rla_client.database.records.fleet import fleet_files

MakeNode = Callable[..., Node]


def test_machines_of_one_host_name_and_databases_of_one_machine_are_told_apart(
    master: Sshd, make_node: MakeNode, tmp_path: Path
) -> None:
    nodes = [make_node(master.remote(), name) for name in ("one", "two")]
    other = Node(tmp_path / "two-more", master.remote())
    register(nodes[1].state, other.root, other.config)  # a second database of the second machine
    for number, node in enumerate([*nodes, other], 1):
        node.run(ITEM.replace("000001", f"00000{number}"))
    for node in nodes:
        node.start()
    session = FolderSession(str(master.root))

    def three() -> bool:
        found = fleet.machines(session)
        items = [run["item"][-30:] for machine in found for run in machine["runs"]]
        return len(found) == 3 and len(set(items)) == 3

    wait_until(three, 30, lambda: str(fleet.machines(session)))
    lines = [line for line in fleet.machines_text(fleet.machines(session)).splitlines() if "seen" in line]
    assert len({line.partition("  seen")[0] for line in lines}) == 3
    assert len({machine["host"] for machine in fleet_files(master.root)}) == 3
    before = sorted(os.listdir(master.root / ".rla-fleet"))
    nodes[0].kill()
    nodes[0].start()
    more = nodes[0].item("results") / "more"
    more.write_bytes(b"more")
    wait_until((master.root / more.relative_to(nodes[0].root)).exists, 20)
    wait_until(
        lambda: sorted(os.listdir(master.root / ".rla-fleet")) == before, 20, "the same names after a restart"
    )


def test_old_status_files_of_the_same_host_go_and_no_others(tmp_path: Path) -> None:
    """Each new state folder (a batch job, a container) leaves a file of its own."""
    session, host = FolderSession(str(tmp_path)), "gpu[1]"
    fleet.remove_old_status(session, host)  # no folder yet
    long_ago = time.time() - fleet.FLEET_KEPT_S - 60
    old = ["gpu_1_-0123abcd.json"]
    kept = ["gpu_1_-0123abcd-9999ffff.json", "gpu_1_-note.json", "gpu_2_-0123abcd.json", "gpu_1_-0123abcd"]
    fleet.leave_status(session, host, "89abcdef", b"{}")
    for name in (*old, *kept):
        path = tmp_path / ".rla-fleet" / name
        path.write_bytes(b"{}")
        os.utime(path, (long_ago, long_ago))
    fleet.remove_old_status(session, host)
    assert sorted(os.listdir(tmp_path / ".rla-fleet")) == sorted([*kept, "gpu_1_-89abcdef.json"])
