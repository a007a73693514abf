"""Several readers at a time: as many sessions as may be, bounded, and gone when one of them fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
from support.faulty_link import Proxy
from support.replication_lab import ITEM, Node, Sshd, random_bytes, tree
from support.waiting import wait_until

from rla_agent.replicate import target_config
from rla_agent.replicate.backend.errors import LinkError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.session import TargetSession
from rla_agent.replicate.transfer.fetch_file import PARTIAL_PREFIX, READ_BYTES
from rla_agent.replicate.transfer.follow import follow
from rla_agent.replicate.transfer.pull import pull
from rla_agent.replicate.transfer.reading_sessions import AHEAD, Readers
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.transfer.tally import Tally
from rla_client.config.schema import load_config


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("reader-")], 10)


def filled(folder: Path, files: int, size: int = 1000) -> Path:
    for number in range(files):
        path = folder / "results" / ITEM / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random_bytes(size + number, number))
    return folder


class Counting(FolderSession):
    """A session that knows how many of them read at once."""

    now: ClassVar[set[int]] = set()
    most = 0
    lock = threading.Lock()

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        with self.lock:
            assert id(self) not in self.now, "a session is used by two threads"
            self.now.add(id(self))
            Counting.most = max(Counting.most, len(self.now))
        time.sleep(0.002)
        try:
            return super().read(path, offset, count)
        finally:
            with self.lock:
                self.now.discard(id(self))


def test_each_session_serves_one_thread_at_a_time(tmp_path: Path) -> None:
    master = filled(tmp_path / "master", 60)
    Counting.most = 0
    opened: list[TargetSession] = []

    def connect() -> TargetSession:
        opened.append(Counting(str(master)))
        return opened[-1]

    tally = pull(Readers(Counting(str(master)), connect, 4), str(tmp_path / "here"), ItemSelection())
    assert (tally.files, tally.failed) == (60, [])
    assert 0 < len(opened) <= 3
    assert Counting.most > 1
    assert tree(tmp_path / "here") == tree(master)


def test_a_master_that_lets_one_in_serves_one_after_the_other(tmp_path: Path) -> None:
    master = filled(tmp_path / "master", 20)
    asked: list[int] = []

    def connect() -> TargetSession:
        asked.append(1)
        raise LinkError("connect", b"", "too many connections")

    tally = pull(Readers(FolderSession(str(master)), connect, 4), str(tmp_path / "here"), ItemSelection())
    assert (tally.files, tally.failed) == (20, [])
    assert len(asked) <= 1


def test_no_more_is_taken_from_the_list_than_is_needed(tmp_path: Path) -> None:
    taken: list[int] = []
    held = threading.Event()

    def jobs() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    def do(_: TargetSession, number: int) -> int:
        held.wait(20)
        return number

    session = FolderSession(str(tmp_path))
    with closing(Readers(session, lambda: FolderSession(str(tmp_path)), 3)) as readers:
        found = readers.each(jobs(), do)
        threading.Timer(0.2, held.set).start()
        next(found)
        assert len(taken) == AHEAD * 3
        assert sorted(number for number, _ in found) != []


def test_the_first_link_that_breaks_ends_all(tmp_path: Path) -> None:
    def do(_: TargetSession, number: int) -> int:
        if number == 5:
            raise LinkError("read", b"", "cut")
        return number

    session = FolderSession(str(tmp_path))
    readers = Readers(session, lambda: FolderSession(str(tmp_path)), 3)
    with closing(readers), pytest.raises(LinkError, match="cut"):
        list(readers.each(range(1000), do))
    with pytest.raises(LinkError, match="stopping"):
        readers.listing(b"")


def test_closing_waits_for_nobody_who_connects(tmp_path: Path) -> None:
    connecting, answered, closed = threading.Event(), threading.Event(), threading.Event()

    class Late(FolderSession):
        def close(self) -> None:
            closed.set()

    def connect() -> TargetSession:
        connecting.set()
        assert answered.wait(60)
        return Late(str(tmp_path))

    def lend() -> None:
        with readers.lent(), pytest.raises(LinkError, match="stopping"), readers.lent():
            pytest.fail("lent after the end")

    readers = Readers(FolderSession(str(tmp_path)), connect, 2)
    second = threading.Thread(target=lend, name="reader-second")
    second.start()
    assert connecting.wait(20)
    end = threading.Thread(target=readers.close)
    end.start()
    end.join(5)
    waited = end.is_alive()
    answered.set()
    second.join(20)
    end.join(20)
    assert not waited
    assert closed.is_set(), "what came too late is closed"


def test_a_pull_over_ssh_that_is_cut_goes_on_where_it_stopped(
    tmp_path: Path, master: Sshd, proxy: Proxy
) -> None:
    """Several large files are half here; the next pull brings the rest."""
    size = 3 * READ_BYTES
    for number in range(4):
        path = master.root / "checkpoint" / ITEM / f"c_{number}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random_bytes(size, number))
    node = Node(tmp_path / "node", master.remote(port=proxy.port, connections=4))
    target = target_config.target(load_config(node.config), node.state)
    here = tmp_path / "here"
    read: list[int] = []

    def say(_: str, done: int, __: int) -> None:
        read.append(done)
        if len(read) == 6:
            proxy.cut_now()

    def pulled() -> int:
        with closing(Readers.opened(target.open, target.connections)) as readers:
            tally = pull(readers, str(here), ItemSelection(), say)
        assert tally.failed == []
        return tally.files

    with pytest.raises(LinkError):
        pulled()
    partials = list(here.rglob(f"{PARTIAL_PREFIX}*"))
    assert partials
    before = len(read)
    assert pulled() + len(list(here.rglob("*.pt"))) >= 4
    assert (
        before + len(read[before:]) < 4 * 3 + 4
    )  # what had come did not come again, but for a piece of each
    assert tree(here) == tree(master.root)


def test_following_keeps_its_sessions(tmp_path: Path) -> None:
    """A look each few seconds is no reason to log in each time."""
    master = filled(tmp_path / "master", 20)
    opened: list[TargetSession] = []

    def connect() -> TargetSession:
        opened.append(Counting(str(master)))
        return opened[-1]

    looks: list[int] = []

    def look(readers: Readers) -> Tally:
        looks.append(1)
        if len(looks) == 4:
            raise KeyboardInterrupt
        filled(master, 20, size=1000 * len(looks))
        return pull(readers, str(tmp_path / "here"), ItemSelection())

    with pytest.raises(KeyboardInterrupt):
        follow(lambda: Readers.opened(connect, 3), look, 0.0, lambda _: None, pytest.fail)
    assert len(opened) <= 3
    assert tree(tmp_path / "here") == tree(master)
