"""What the master has acknowledged is confirmed, or looked at and sent again."""

from __future__ import annotations

import errno
import os
import queue
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.small_file import SmallFile
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger import CONFIRM_S, Ledger
from rla_agent.replicate.ledger_rows import BURIED, DROPPED, GONE, PRUNED, Key
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.problems import attention
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.worker.confirm import RESTED_S, SYNC_S, Confirmations, check_all
from rla_agent.replicate.worker.file_decision import SMALL_BYTES
from rla_agent.replicate.worker.sender_threads import SenderThreads

ITEM = b"results/task/2026/11/21/09-30-01-000001_10.0.0.5_x"


class Lab:
    """A ledger with a file that was sent, and the master that has it."""

    def __init__(self, folder: Path, size: int = 1000, path: bytes = ITEM + b"/x") -> None:
        self.state = folder / "state"
        (folder / "master").mkdir()
        self.master = folder / "master"
        self.ledger = Ledger(ledger_path(self.state))
        self.number = self.ledger.database(os.fsencode(folder / "data"), "folder:master")
        self.confirmations = Confirmations(self.ledger, self.number, needed=True)
        self.link = SenderThreads(
            lambda: FolderSession(str(self.master)), queue.SimpleQueue(), lambda: None, 1
        )
        self.session = FolderSession(str(self.master))
        self.path = path
        self.parent, _, name = path.rpartition(b"/")
        self.kind = os.fsdecode(ITEM.partition(b"/")[0])
        self.key = Key(self.ledger.folder(self.number, self.parent, self.kind, ITEM), name)
        self.there = self.master / os.fsdecode(self.path)
        self.data = os.urandom(size)
        self.sent_at = time.time()
        self.now = 0.0

    def send(self, *, synced: bool, can_sync: bool = True) -> None:
        self.session.make_folders([*dict.fromkeys([ITEM, self.parent])])
        (found,) = self.session.put_many(
            [SmallFile(self.path, self.parent + b"/.rla-tmp-x", self.data, 1000, None, lambda: True)]
        )
        assert not isinstance(found, Exception)
        crc, head, tail = (zlib.crc32(part) for part in (self.data, self.data[:4096], self.data[-4096:]))
        local = Local(1, len(self.data), 2, 3)
        record = SentRecord(local, 0, len(self.data), crc, head, tail, None, found.mtime_s)
        self.ledger.mark(self.key, self.number, 1, 0, 0.0)
        self.ledger.sent(self.key, record, self.sent_at)
        self.ledger.made_item(self.number, ITEM)
        self.confirmations.sent(self.key, self.path, len(self.data), 0.0, synced=synced, can_sync=can_sync)

    def look(self, *, sync: bool = True) -> int:
        """Look at what is to be looked at; how many files that is."""
        self.now += 10
        files = self.confirmations.take_checks((), self.link, self.now)
        if not sync:
            self.session.__class__ = _NoSync
        self.confirmations.checked(files, check_all(self.session, files))
        return len(files)

    def row(self) -> tuple[int, float | None, int | None]:
        """State, when it is looked at, and how many bytes the master has."""
        row: tuple[int, float | None, int | None]
        query = "SELECT state, check_at, acked FROM files WHERE folder = ? AND name = ?"
        (row,) = self.ledger._db.execute(query, self.key).fetchall()
        return row


class _NoSync(FolderSession):
    @property
    def syncs(self) -> bool:
        return False


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.link.close()
    made.ledger.close()


def test_what_was_synced_is_confirmed_in_time_without_a_look(lab: Lab) -> None:
    lab.link.ended_on = 0.0
    lab.send(synced=True)
    assert lab.look() == 0
    assert lab.row()[1] is not None
    lab.ledger._db.execute("UPDATE files SET check_at = ?", (time.time() - 1,))
    assert lab.look() == 0
    assert lab.row() == (0, None, 1000)


def test_after_a_session_has_ended_it_is_looked_at(lab: Lab) -> None:
    lab.send(synced=True)
    lab.link.ended_at = lab.link.broken_at = time.monotonic()
    assert lab.look() == 1
    assert lab.row() == (0, None, 1000)


def test_one_that_ended_by_itself_counts_once_the_next_begins(lab: Lab) -> None:
    lab.send(synced=True)
    lab.link.ended_at = time.monotonic()
    assert lab.look() == 0
    lab.link.begun_at = time.monotonic()
    assert lab.look() == 1


def test_a_clock_that_is_set_back_hides_no_break(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.send(synced=False)
    monkeypatch.setattr(time, "time", lambda: lab.sent_at - 86400)
    lab.link._sessions[0] = FolderSession(str(lab.master))
    lab.link._drop(0, broken=True)
    assert lab.look() == 1


def test_a_server_that_cannot_sync_is_looked_at_once_more(lab: Lab) -> None:
    lab.send(synced=False, can_sync=False)
    lab.confirmations.doubt()
    assert lab.look(sync=False) == 1
    state, again, acked = lab.row()
    assert (state, acked) == (0, 1000)
    assert again == pytest.approx(lab.sent_at + CONFIRM_S)
    lab.ledger._db.execute("UPDATE files SET sent_at = sent_at - 400, check_at = check_at - 400")
    assert lab.look(sync=False) == 1
    assert lab.row() == (0, None, 1000)


@pytest.mark.parametrize("size", [1000, SMALL_BYTES + 1000])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "zeros", "none"])
def test_what_is_damaged_is_sent_again(tmp_path: Path, damage: str, size: int) -> None:
    lab = Lab(tmp_path, size)
    lab.send(synced=True)
    lab.confirmations.doubt()
    if damage == "gone":
        lab.there.unlink()
    elif damage in {"empty", "cut"}:
        os.truncate(lab.there, 0 if damage == "empty" else size - 1)
        os.utime(lab.there, (1000, 1000))
    elif damage == "zeros":
        lab.there.write_bytes(lab.data[:-100] + bytes(100))
        os.utime(lab.there, (1000, 1000))
    assert lab.look() == 1
    expected = {"gone": (1, None, None), "none": (0, None, size)}.get(damage, (1, None, size))
    assert lab.row() == expected
    assert lab.confirmations.mended == (damage != "none")
    assert (lab.ledger.backlog(lab.number)["bytes"] == size) is (damage != "none")
    lab.link.close()
    lab.ledger.close()


@pytest.mark.parametrize("whole_is_here", [True, False])
def test_what_another_machine_may_have_replaced_is_not_sent_again(
    tmp_path: Path, *, whole_is_here: bool
) -> None:
    checkpoint = ITEM + b"/checkpoint_5.dcp"
    lab = Lab(tmp_path, path=checkpoint + b"/__1_0.distcp")
    mark = Key(lab.ledger.folder(lab.number, checkpoint + b"/.rla", lab.kind, ITEM), b"whole.json")
    lab.ledger.mark(mark, lab.number, 1, 0, 0.0)
    lab.ledger.set_state(mark, 0 if whole_is_here else PRUNED)  # pruned: other machines have parts of it
    lab.send(synced=True)
    lab.confirmations.doubt()
    lab.there.write_bytes(b"the shard of a later save of this time-step")
    assert lab.look() == 1
    assert lab.row()[0] == (1 if whole_is_here else 0)
    assert (lab.row()[1] is None) is whole_is_here, "it is looked at again"
    lab.link.close()
    lab.ledger.close()


@pytest.mark.parametrize(
    ("number", "again"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.EINVAL, False)]
)
def test_what_the_masters_disk_gave_an_error_for_is_sent_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, number: int, *, again: bool
) -> None:
    """It is there, but in the master's memory only."""
    lab.send(synced=False)
    lab.confirmations.doubt()

    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    assert lab.look() == 1
    assert lab.row()[0] == again
    assert lab.confirmations.mended == again


def test_an_item_of_which_nothing_was_confirmed_is_made_again(lab: Lab) -> None:
    lab.send(synced=False)
    lab.ledger.mark(Key(lab.key.folder, b"y"), lab.number, 1, 0, 0.0)
    lab.ledger.park_item(lab.number, ITEM, "moved on master: the item's folder is gone", "")
    lab.there.unlink()
    lab.there.parent.rmdir()
    lab.confirmations.doubt()
    assert lab.look() == 1
    due = lab.ledger.due(lab.number, 1.0, (0, 3), 10)
    assert sorted((one.key.name, one.item_made) for one in due) == [(b"x", False), (b"y", False)]


def test_one_of_which_something_was_confirmed_was_moved(lab: Lab) -> None:
    lab.send(synced=False)
    other = Key(lab.key.folder, b"old")
    lab.ledger.mark(other, lab.number, 1, 0, 0.0)
    lab.ledger.sent(other, SentRecord(Local(5, 5, 5, 5), 0, 5, 1, 1, 1, None, 1), 1.0)
    lab.there.unlink()
    lab.confirmations.doubt()
    assert lab.look() == 1
    (due,) = lab.ledger.due(lab.number, 1.0, (0, 3), 10)
    assert (due.key, due.item_made) == (lab.key, True)


def test_what_is_lost_there_and_no_more_here_is_told(lab: Lab) -> None:
    lab.send(synced=True)
    lab.ledger.set_state(lab.key, GONE)
    lab.there.unlink()
    lab.confirmations.doubt()
    assert lab.look() == 1
    assert lab.row() == (GONE, None, 1000)
    lab.ledger.commit()
    status = replication_status(lab.state)
    assert status["lost"] == [os.fsdecode(lab.path)]
    assert any("is no more here" in one["what"] for one in attention(status))
    lab.ledger.unpark()
    lab.ledger.commit()
    assert replication_status(lab.state)["lost"] == []


def test_a_pruned_checkpoint_that_the_master_lost_is_told(tmp_path: Path) -> None:
    checkpoint = ITEM + b"/checkpoint_5.dcp"
    lab = Lab(tmp_path, path=checkpoint + b"/__0_0.distcp")
    mark = Key(lab.ledger.folder(lab.number, checkpoint + b"/.rla", lab.kind, ITEM), b"whole.json")
    lab.ledger.mark(mark, lab.number, 1, 0, 0.0)
    lab.ledger.set_state(mark, PRUNED)
    lab.send(synced=True)
    lab.ledger.set_state(lab.key, PRUNED)
    lab.there.unlink()
    lab.confirmations.doubt()
    assert lab.look() == 1
    lab.ledger.commit()
    assert replication_status(lab.state)["lost"] == [os.fsdecode(lab.path)]
    lab.link.close()
    lab.ledger.close()


def test_appends_are_synced_together(lab: Lab) -> None:
    lab.send(synced=False)  # at 0 s
    assert lab.confirmations.take_syncs(RESTED_S / 2) == ()
    for second in range(1, int(SYNC_S)):
        name = Key(lab.key.folder, b"%d" % second)
        lab.confirmations.sent(name, b"p", 1, float(second), synced=False, can_sync=True)
        assert lab.confirmations.take_syncs(second + 0.5) == ()
    taken = lab.confirmations.take_syncs(SYNC_S)
    assert [file.acked for file in taken] == [1000] + [1] * (len(taken) - 1)
    assert lab.confirmations.take_syncs(SYNC_S + 100) == ()
    lab.confirmations.synced(taken[:1])
    assert lab.ledger._db.execute("SELECT synced FROM files").fetchall() == [(1,)]


def test_where_nothing_is_ever_lost_nothing_is_looked_at(lab: Lab) -> None:
    lab.send(synced=False)
    bucket = Confirmations(lab.ledger, lab.number, needed=False)
    assert lab.row() == (0, None, 1000)
    bucket.sent(lab.key, lab.path, 1000, 0.0, synced=False, can_sync=True)
    assert lab.row() == (0, None, 1000)
    assert not bucket.waits()
    assert bucket.take_syncs(100.0) == ()


@pytest.mark.parametrize("damage", ["gone", "empty"])
@pytest.mark.parametrize("state", [GONE, BURIED, DROPPED])
def test_what_was_deleted_during_the_look_is_not_sent_again(lab: Lab, state: int, damage: str) -> None:
    lab.send(synced=True)
    lab.confirmations.doubt()
    files = lab.confirmations.take_checks((), lab.link, 10.0)
    lab.there.unlink()
    if damage == "empty":
        lab.there.touch()
    found = check_all(lab.session, files)
    lab.ledger.set_state(lab.key, state)
    lab.confirmations.checked(files, found)
    assert lab.row()[0] == state
    assert lab.confirmations.mended == 0
