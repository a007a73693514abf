"""The worker's log does not grow for ever."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.replication_lab import Node, same_trees
from support.waiting import wait_until

from rla_agent.replicate.status import replication_status


def folder_master(path: Path) -> dict[str, Any]:
    path.mkdir()
    return {"file_transfer_protocol": "folder", "remote_data_root": str(path)}


@pytest.fixture
def near(tmp_path: Path, make_node: Callable[..., Node]) -> Node:
    return make_node(folder_master(tmp_path / "near_master"), "near")


@pytest.mark.slow
@pytest.mark.further
def test_a_list_of_databases_that_cannot_be_read_ends_no_replication(tmp_path: Path, near: Node) -> None:
    near.run()
    near.start()
    wait_until(lambda: same_trees(near, tmp_path / "near_master"), 30)
    path = near.state / "replicate" / "databases.json"
    known = path.read_bytes()
    path.write_bytes(b"{")

    def says(words: str) -> bool:
        return words in (near.folder / "worker.log").read_text()

    wait_until(partial(says, "what was replicated before still is"), 60)
    assert f"{path}, the list of databases, cannot be read" in replication_status(near.state)["error"]
    assert len(replication_status(near.state)["targets"]) == 1
    near.run(item="table/2026/11/21/09-30-01-000002_10.0.0.5_late")
    wait_until(lambda: same_trees(near, tmp_path / "near_master"), 30)
    path.write_bytes(known)
    wait_until(partial(says, "can be read again"), 60)
    assert "error" not in replication_status(near.state)
    assert near.stop() == 0


LOGS = """
import logging, os, sys
from pathlib import Path
from rla_agent.replicate.worker import worker_log
worker_log.LOG_BYTES = 2000
path = Path(sys.argv[1])
worker_log.log_to(path)
for number in range(100):
    logging.getLogger("x").warning("line %d of some length", number)
os.write(2, b"the end of a traceback\\n")
"""


def test_the_log_of_a_worker_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "worker.log"
    with path.open("ab") as output:
        subprocess.run(
            [sys.executable, "-c", LOGS, path], stdout=output, stderr=output, check=True, timeout=60
        )
    assert path.stat().st_size < 3000
    assert (tmp_path / "worker.log.1").stat().st_size < 3000
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["worker.log", "worker.log.1"]
    assert path.read_text().endswith("line 99 of some length\nthe end of a traceback\n")
