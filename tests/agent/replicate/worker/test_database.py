"""What of a file counts as waiting, and how urgent it is."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.replication_lab import Node, same_trees
from support.waiting import TIME_FACTOR

from rla_agent.replicate import settings
from rla_agent.replicate.report import replication_status
from rla_agent.replicate.settings import Announcer, register
from rla_agent.replicate.worker.main import Worker
from rla_agent.replicate.worker.plan import LATER, SMALL_BYTES, URGENT

ROW = b"12345,67890\n"


class Lab:
    """A node with a log of 2 MiB on a master, and the worker that sent it, in this process."""

    def __init__(self, folder: Path) -> None:
        self.master = folder / "master"
        self.master.mkdir()
        self.node = Node(
            folder / "node", {"file_transfer_protocol": "folder", "remote_data_root": str(self.master)}
        )
        register(self.node.state, self.node.root, self.node.config)
        self.log = self.node.run() / "progress.csv"
        self.log.write_bytes(ROW * ((2 << 20) // len(ROW)))
        self.announcer = Announcer(self.node.state)
        self.worker = Worker(self.node.state, self.node.host)

    def until(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + 20 * TIME_FACTOR
        while not condition():
            assert time.monotonic() < end, what
            more = self.worker.turn(time.monotonic())
            self.worker._wait(0.0 if more else 0.05)

    def waiting(self) -> tuple[int, int] | None:
        """Bytes of the log that wait, and their priority; None while none do."""
        path = self.node.state / "replicate" / "ledger.db"
        with closing(sqlite3.connect(path)) as db:
            query = "SELECT pending, prio FROM files WHERE name = ? AND state = 1"
            row: tuple[int, int] | None = db.execute(query, (b"progress.csv",)).fetchone()
        return row


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    made.until(lambda: same_trees(made.node, made.master), "all being there")
    made.until(lambda: not made.waiting(), "nothing waiting")
    settings.pause(made.node.state)
    yield made
    made.worker.close()
    made.announcer.close()


@pytest.mark.parametrize("way", ["outputs", "files", "looked at"])
def test_of_a_growing_log_only_what_is_new_waits(lab: Lab, way: str) -> None:
    with lab.log.open("ab") as file:
        file.write(ROW)
    if way == "outputs":
        lab.announcer.committed([(str(lab.log), 0, lab.log.stat().st_size, False)])
    elif way == "files":
        lab.announcer.placed([str(lab.log)])
    lab.until(lab.waiting, "the row waiting")
    assert lab.waiting() == (len(ROW), URGENT)
    backlog = replication_status(lab.node.state)["targets"][0]["backlog"]
    assert backlog["log"] == {"files": 1, "bytes": len(ROW)}
    with lab.log.open("ab") as file:
        file.write(ROW)
    lab.announcer.committed([(str(lab.log), 0, lab.log.stat().st_size, False)])
    lab.until(lambda: lab.waiting() == (2 * len(ROW), URGENT), "both rows waiting")


def test_one_that_was_replaced_waits_as_a_whole(lab: Lab) -> None:
    size = SMALL_BYTES + 1
    new = lab.log.with_name(".rla-tmp-new")
    new.write_bytes(b"x" * size)
    os.replace(new, lab.log)
    lab.announcer.committed([(str(lab.log), 1, size, False)])
    lab.until(lab.waiting, "it waiting")
    assert lab.waiting() == (size, LATER)
