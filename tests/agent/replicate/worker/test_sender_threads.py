"""The threads that send to a master: whatever goes wrong in one, its batch comes back with an error."""

from __future__ import annotations

import hashlib
import os
import queue
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from support.waiting import wait_until

from rla_agent.replicate.backend.errors import BlockedError, LinkError, MissingError, NoRootError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Drop, Key
from rla_agent.replicate.worker import sender_threads
from rla_agent.replicate.worker.batch import BatchOutcome, Confirmed, SendBatch
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.database import TargetDatabase
from rla_agent.replicate.worker.scan import Scanner, ScanScope
from rla_agent.replicate.worker.sender_threads import SenderThreads
from rla_client.contract.errors import ConfigError


@pytest.mark.parametrize(
    ("fault", "kind", "why"),
    [
        (ConfigError("~/.ssh/config", ["No closing quotation"]), BlockedError, "No closing quotation"),
        (MissingError("stat", b"x", "gone"), LinkError, "gone"),
        (NoRootError("open", b"", "no root"), BlockedError, "no root"),
        (ZeroDivisionError("by zero"), LinkError, "internal error"),
    ],
)
def test_a_sender_that_cannot_connect_for_an_odd_reason(
    fault: Exception, kind: type[Exception], why: str
) -> None:
    def open_session() -> TargetSession:
        raise fault

    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    with closing(SenderThreads(open_session, outcomes, lambda: None, 1)) as link:
        for _ in range(2):  # the thread goes on
            link.give(0, SendBatch(1, -1, ()))
            outcome = outcomes.get(timeout=10)
            assert isinstance(outcome, BatchOutcome)
            assert isinstance(outcome.error, kind)
            assert why in outcome.error.why


@pytest.mark.parametrize("content", [b"ours", b"else"])
def test_what_calls_a_checkpoint_whole_goes_whatever_its_time(tmp_path: Path, content: bytes) -> None:
    mark = tmp_path / "a_1.dcp/.rla/whole.json"
    mark.parent.mkdir(parents=True)
    mark.write_bytes(content)
    drop = Drop(Key(1, mark.name.encode()), os.fsencode(mark.relative_to(tmp_path)), RemoteStat(4, 5),
                hashlib.sha256(b"ours").digest())  # fmt: skip
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    with closing(SenderThreads(lambda: FolderSession(str(tmp_path)), outcomes, lambda: None, 1)) as link:
        link.give(0, SendBatch(1, -1, (), drops=(drop,)))
        outcome = outcomes.get(timeout=10)
        assert isinstance(outcome, BatchOutcome)
        assert outcome.dropped == (drop,)
    assert mark.exists() == (content == b"else")


def test_looking_for_what_was_moved_keeps_no_session_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_threads, "ALIVE_S", 0.01)
    monkeypatch.setattr(sender_threads, "IDLE_CLOSE_S", 0.3)
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    (tmp_path / "there").mkdir()
    looks = 0
    with closing(SenderThreads(lambda: FolderSession(str(tmp_path)), outcomes, lambda: None, 1)) as sender:
        sender.give(0, SendBatch(1, -1, (), remove=(b".rla-tmp-x",)))
        outcomes.get(timeout=10)
        assert sender.is_open(0)
        end = time.monotonic() + 60
        while sender.is_open(0):
            assert time.monotonic() < end, "the session is kept open"
            sender.give(0, SendBatch(1, -1, (), moved=(b"there",)))
            outcome = outcomes.get(timeout=10)
            assert isinstance(outcome, BatchOutcome)
            assert outcome.back == (b"there",)
            looks += 1
            threading.Event().wait(0.02)  # the thread looks at its clock while nothing is to be done
        assert looks > 1


def test_a_data_root_stays_open_while_a_sender_reads_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number would be another file's by then, and that file's bytes would be sent."""
    monkeypatch.setattr(sender_threads, "JOIN_S", 0.05)
    began, release = threading.Event(), threading.Event()

    def open_session() -> TargetSession:
        began.set()
        assert release.wait(60)
        raise NoRootError("open", b"", "no root")

    (tmp_path / "data").mkdir()
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    with closing(Ledger(tmp_path / "ledger.db")) as ledger, closing(Committed(tmp_path)) as committed:
        root = bytes(tmp_path / "data")
        number = ledger.database(root, "there")
        sender = SenderThreads(open_session, outcomes, lambda: None, 1)
        database = TargetDatabase(number, Scanner(root, ScanScope("")), sender, ledger, committed)
        assert database._open_root()
        held = database.descriptor
        sender.give(0, SendBatch(number, held, ()))
        assert began.wait(60)
        database.close()
        assert os.path.samestat(os.fstat(held), os.stat(root))
        release.set()
        wait_until(lambda: not any(thread.name == "close-root" for thread in threading.enumerate()))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(held)


class Noted(SenderThreads):
    """A link that notes when a break was noted."""

    breaks: Final[list[object]] = []

    def __setattr__(self, name: str, value: object) -> None:
        if name == "broken_at" and value:
            self.breaks.append(value)
        super().__setattr__(name, value)


def test_a_sender_that_just_ends_puts_back_no_break_that_another_saw(tmp_path: Path) -> None:
    """What it had read before is old by the time it writes, and then nothing would be looked at."""
    with closing(Noted(lambda: FolderSession(str(tmp_path)), queue.SimpleQueue(), lambda: None, 1)) as link:
        for broken in (True, False):
            link._sessions[0] = FolderSession(str(tmp_path))
            link._drop(0, broken=broken)
        assert link.breaks == [link.broken_at]


class Breaking(FolderSession):
    """A session that breaks when something is to be removed."""

    def remove(self, path: bytes) -> None:
        raise LinkError("talk to", path, "the master is gone")


def test_a_break_is_noted_behind_what_the_session_had_acknowledged(tmp_path: Path) -> None:
    """Whoever doubts what was acknowledged before a break must know of all of it by then."""
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    known: list[int] = []

    class Watched(SenderThreads):
        def __setattr__(self, name: str, value: object) -> None:
            if name == "ended_at" and hasattr(self, "_bucket"):
                known.append(outcomes.qsize())
            super().__setattr__(name, value)

    with closing(Watched(lambda: Breaking(str(tmp_path)), outcomes, lambda: None, 1)) as link:
        link.give(0, SendBatch(1, -1, (), remove=(b".rla-tmp-x",)))
        wait_until(lambda: bool(known))
    assert known == [1]
