"""The replicator's process: what configurations that cannot be read hold up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.hung_folder import hung, needs_hung_folder
from support.replication_lab import Node, same_trees
from support.waiting import wait_until

from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.registry import register
from rla_agent.replicate.status import replication_status


def folder_master(path: Path) -> dict[str, Any]:
    path.mkdir()
    return {"file_transfer_protocol": "folder", "remote_data_root": str(path)}


def problems(node: Node) -> str:
    return str(replication_status(node.state)["problems"])


@pytest.fixture
def near(tmp_path: Path, make_node: Callable[..., Node]) -> Node:
    return make_node(folder_master(tmp_path / "near_master"), "near")


@pytest.fixture
def far(tmp_path: Path, near: Node) -> Node:
    """Another project of the same agent."""
    found = Node(tmp_path / "far", folder_master(tmp_path / "far_master"))
    found.root = tmp_path / "far_data"
    found.root.mkdir()
    register(near.state, found.root, found.config)
    return found


@pytest.mark.slow
@needs_hung_folder
def test_a_configuration_on_a_server_that_hangs_holds_up_only_its_own_database(
    tmp_path: Path, near: Node, far: Node
) -> None:
    near.run()
    far.run()
    with hung(far.folder) as server:
        near.start()
        wait_until(lambda: same_trees(near, tmp_path / "near_master"), 30)
        wait_until(lambda: "cannot be read now" in problems(near), 30)
        server.come_back()
        wait_until(lambda: same_trees(far, tmp_path / "far_master"), 30)
        wait_until(lambda: "cannot be read now" not in problems(near), 30)
    with hung(far.folder):
        far.run(item="table/2026/11/21/09-30-01-000002_10.0.0.5_late")
        near.run(item="table/2026/11/21/09-30-01-000003_10.0.0.5_late")
        with closing(Announcer(near.state)) as announcer:
            announcer.now(())  # look now
        for node, master in ((far, "far_master"), (near, "near_master")):
            wait_until(partial(same_trees, node, tmp_path / master), 30)
    assert near.stop() == 0


@pytest.mark.slow
def test_a_configuration_that_changes_is_read_again(tmp_path: Path, near: Node) -> None:
    near.run()
    near.start()
    wait_until(lambda: same_trees(near, tmp_path / "near_master"), 30)
    near.config.write_text("SEND_LOG_FILE: 7\n")
    wait_until(lambda: "SEND_LOG_FILE" in problems(near), 30)
    near.remote = folder_master(tmp_path / "other_master")
    near.write_config()
    wait_until(lambda: same_trees(near, tmp_path / "other_master"), 30)
    wait_until(lambda: problems(near) == "{}", 30)
    near.config.unlink()
    wait_until(lambda: str(near.config) in problems(near), 30)
    assert near.stop() == 0
