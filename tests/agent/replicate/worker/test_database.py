"""What of a file counts as waiting, and how urgent it is."""

from __future__ import annotations

import os
import queue
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.replication_lab import Node, same_trees
from support.waiting import TIME_FACTOR

from rla_agent.replicate import command_markers
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.registry import register
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.worker.batch import BatchOutcome, SendBatch
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.confirm import Unsynced
from rla_agent.replicate.worker.database import LONG_S, MOVED_A_BATCH, MOVED_ALONE_S, MOVED_S, TargetDatabase
from rla_agent.replicate.worker.file_decision import LATER, SMALL_BYTES, URGENT
from rla_agent.replicate.worker.scan import Scanner, ScanScope
from rla_agent.replicate.worker.send_job import Sent
from rla_agent.replicate.worker.sender_threads import SenderThreads
from rla_agent.replicate.worker.worker import Replicator

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
        self.worker = Replicator(self.node.state, self.node.host)

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
    command_markers.pause(made.node.state)
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


class Given:
    """A database whose senders only note what they are given."""

    def __init__(self, folder: Path, connections: int) -> None:
        self.folder = folder / "data/results/t/2026/11/21/09-30-01-000001_h_x"
        self.folder.mkdir(parents=True)
        self.root = os.fsencode(folder / "data")
        self.ledger = Ledger(folder / "ledger.db")
        self.committed = Committed(folder)
        self.link = SenderThreads(
            lambda: pytest.fail("sends"), queue.SimpleQueue(), lambda: None, connections
        )
        number = self.ledger.database(self.root, "there")
        self.database = TargetDatabase(
            number, Scanner(self.root, ScanScope("")), self.link, self.ledger, self.committed
        )
        self.batches: list[SendBatch] = []
        setattr(self.link, "give", lambda _, batch: self.batches.append(batch))  # noqa: B010
        assert self.database._open_root()

    def mark(self, name: str) -> Key:
        """A file that is to be sent."""
        path = self.folder / name
        path.write_bytes(b"content")
        os.utime(path, (1, 1))
        self.database.changes.hint(os.fsencode(path.relative_to(os.fsdecode(self.root))), 1.0, whole=True)
        path_below = os.fsencode(self.folder.relative_to(os.fsdecode(self.root)))
        return Key(self.ledger.folder(self.database.number, path_below, "results", path_below), name.encode())

    def send(self, key: Key, *, synced: bool) -> None:
        """As if it had been sent."""
        self.ledger.sent(key, SentRecord(Local(1, 7, 2, 3), 0, 7, 1, 1, 1, None, 1), 1.0)
        confirmations = self.database.confirmations
        confirmations.sent(key, key.name, 7, 1.0, synced=synced, can_sync=True)

    def give(self, sender: int, now: float) -> SendBatch:
        """The next batch of a sender."""
        self.database._give(sender, now)
        return self.batches.pop()

    def close(self) -> None:
        self.link.close()
        os.close(self.database.descriptor)
        self.ledger.close()
        self.committed.close()


@pytest.fixture(params=[1, 2])
def given(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Given]:
    made = Given(tmp_path, request.param)
    yield made
    made.close()


def test_checks_ride_behind_no_upload_and_starve_none(given: Given) -> None:
    """What is looked at is locked until its batch is back."""
    for number in range(3):
        given.send(given.mark(f"old{number}.bin"), synced=True)
    given.mark("new.bin")
    given.database.confirmations.doubt()
    last = given.link.connections - 1
    first = given.give(last, 100.0)
    assert (len(first.checks), len(first.jobs)) == (3, 0)
    given.database.confirmations.checked(first.checks, [])
    second = given.give(last, 101.0)
    assert (len(second.checks), len(second.jobs)) == (0, 1)
    assert len(given.give(last, 102.0).checks) == 3


def test_syncs_wait_behind_no_upload_and_keep_nothing_urgent_waiting(given: Given) -> None:
    given.send(given.mark("old.bin"), synced=False)
    given.mark("new.bin")
    if given.link.connections > 1:
        given.database._flight.jobs[Key(99, b"large")] = given.give(1, 1.5).jobs[0]
        given.mark("urgent.json")
        assert given.give(0, 100.0).syncs == ()
    batch = given.give(given.link.connections - 1, 100.0)
    assert (len(batch.syncs), len(batch.jobs)) == (1, 0)


def test_checks_and_syncs_wait_for_no_upload_that_takes_long(given: Given) -> None:
    """The sender of what is urgent does them then, in every other batch."""
    if given.link.connections == 1:
        return
    given.send(given.mark("old.bin"), synced=False)
    given.mark("large.bin")
    given.database.confirmations.take_syncs(0.0)
    assert len(given.give(1, 100.0).syncs) == 1
    assert len(given.give(1, 200.0).jobs) == 1
    given.link.busy.add(1)
    given.send(given.mark("appended.csv"), synced=False)
    given.send(given.mark("doubted.bin"), synced=True)
    given.database.confirmations.doubt()
    given.mark("urgent.json")
    early = given.give(0, 200.0 + LONG_S / 2)
    assert (len(early.jobs), early.syncs, early.checks) == (1, (), ())
    late = given.give(0, 201.0 + LONG_S)
    assert (len(late.jobs), len(late.syncs), len(late.checks)) == (0, 1, 3)


def test_all_items_that_were_moved_are_looked_for_in_turn(given: Given) -> None:
    items = [b"log/t/%03d" % number for number in range(MOVED_A_BATCH + 6)]
    for item in items:
        given.ledger.made_item(given.database.number, item)
        given.ledger.park_item(given.database.number, item, "moved on master", "")
    looks = [given.database._take_moved(now, connects=False) for now in (1000, 1001, 1002, 1001 + MOVED_S)]
    first, rest = tuple(items[:MOVED_A_BATCH]), tuple(items[MOVED_A_BATCH:])
    assert looks == [first, rest, (), first]


def test_no_session_is_opened_each_minute_to_look_for_an_item_that_was_moved(given: Given) -> None:
    item, last = b"log/t/x", given.link.connections - 1
    given.ledger.made_item(given.database.number, item)
    given.ledger.park_item(given.database.number, item, "moved on master", "")
    assert given.give(last, 1000.0).moved == (item,)  # at first, as what was before is not known
    for now in (1000 + MOVED_S, 1000 + 2 * MOVED_S, 999 + MOVED_ALONE_S):
        assert given.database._take_moved(now, connects=True) == ()
    given.mark("new.json")
    batch = given.give(last, 1000 + 3 * MOVED_S)
    assert (len(batch.jobs), batch.moved) == (1, (item,))  # with what is to be done anyway
    assert given.database._take_moved(1000 + 3 * MOVED_S + MOVED_ALONE_S, connects=True) == (item,)


@pytest.mark.parametrize("flies", [False, True])
def test_what_the_masters_disk_gave_an_error_for_goes_as_a_whole(given: Given, *, flies: bool) -> None:
    """Once what is being appended meanwhile has landed."""
    key, database = given.mark("old.bin"), given.database
    if flies:
        (job,) = given.give(given.link.connections - 1, 2.0).jobs
    given.send(key, synced=False)
    file = Unsynced(key, b"old.bin", 7)
    batch = SendBatch(database.number, database.descriptor, ())
    database.outcome(BatchOutcome(0, batch, (), unsound=(file,)), 100.0)
    if flies:
        assert given.ledger.backlog(database.number)["files"] == 0
        sent = Sent(job, SentRecord(Local(1, 9, 2, 3), 0, 9, 1, 1, 1, None, 1))
        database.outcome(BatchOutcome(0, replace(batch, jobs=(job,)), (sent,)), 101.0)
    assert given.ledger.backlog(database.number)["files"] == 1
    record = given.ledger.record(key)
    assert record is not None
    assert record.generation < 0
