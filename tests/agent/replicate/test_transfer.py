from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest
from replication_lab import ITEM, Node, Sshd, random_bytes, same_trees, tree, wait_until

from rla_agent.replicate import replication_status, transfer
from rla_agent.replicate.cli import verify_database
from rla_agent.replicate.folder import FolderSession
from rla_agent.replicate.target import RemoteStat, TransientError
from rla_agent.replicate.transfer import Selection, Tally, fetch, pull, push
from rla_client.config import load_config
from rla_client.errors import UnsafeNameError

OTHER = "other/2026/11/22/09-30-01-000002_10.0.0.5_&lr=0.01"


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    root = tmp_path / "master"
    for kind, item, name, size in (
        ("log", ITEM, "progress.csv", 1000),
        ("checkpoint", ITEM, "c_1.pt", 9_000_000),
        ("log", OTHER, "progress.csv", 10),
        ("results", OTHER, "a/b.png", 20),
    ):
        path = root / kind / item / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random_bytes(size, size))
    return root


def test_pull_takes_what_is_selected_and_only_once(remote: Path, tmp_path: Path) -> None:
    session = FolderSession(str(remote))
    local = tmp_path / "local"
    assert pull(session, str(local), Selection(kinds=("log",), table="task")).files == 1
    assert list(tree(local)) == [f"log/{ITEM}/progress.csv"]
    assert pull(session, str(local), Selection(since="2026/11/22")).files == 2
    assert pull(session, str(local), Selection(until="2026/11/21")).files == 1
    again = pull(session, str(local), Selection())
    assert (again.files, again.same, again.failed) == (0, 4, [])
    assert tree(local) == tree(remote)


def test_pull_goes_on_where_it_stopped(remote: Path, tmp_path: Path) -> None:
    path = f"checkpoint/{ITEM}/c_1.pt".encode()
    local = tmp_path / "local"

    class Cut(FolderSession):
        read_bytes = 0
        limit = 5_000_000

        def read(self, path: bytes, offset: int, count: int) -> bytes:
            if self.read_bytes > self.limit:
                raise TransientError("read", path, "cut")
            data = super().read(path, offset, count)
            self.read_bytes += len(data)
            return data

    session = Cut(str(remote))
    state = session.stat(path)
    assert state is not None
    with pytest.raises(TransientError):
        fetch(session, str(local), path, state)
    assert [name for name in tree(local) if not name.rpartition("/")[2].startswith(".rla-tmp")] == []
    first, session.limit = session.read_bytes, 10**9
    assert fetch(session, str(local), path, state)
    assert session.read_bytes == state.size
    assert 0 < first < state.size
    assert tree(local) == {path.decode(): tree(remote)[path.decode()]}


def test_the_master_is_not_trusted(tmp_path: Path) -> None:
    local, outside = tmp_path / "local", tmp_path / "outside"
    outside.mkdir()
    session = FolderSession(str(outside))
    for name in (b"../x", b"/etc/x", b"log/../../x", b"a//b", b"log/\n"):
        with pytest.raises(UnsafeNameError):
            fetch(session, str(local), name, RemoteStat(1, 1))
    (local / "log").mkdir(parents=True)
    (local / "log" / "task").symlink_to(outside)
    with pytest.raises(OSError, match=r"Errno"):
        fetch(session, str(local), f"log/{ITEM}/x".encode(), RemoteStat(1, 1))
    assert list(outside.iterdir()) == []

    class Liar(FolderSession):
        def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
            del path
            return [
                (b"..", RemoteStat(0, 0, "folder")),
                (b"x\x1b[2J", RemoteStat(0, 0)),
                (b"a/b", RemoteStat(0, 0)),
            ]

    tally = Tally()
    assert list(transfer.remote_files(Liar(str(outside)), Selection(kinds=("log",)), tally)) == []
    assert len(tally.failed) == 3


def test_a_file_of_another_size_than_announced_is_not_kept(remote: Path, tmp_path: Path) -> None:
    path = f"log/{ITEM}/progress.csv".encode()
    session = FolderSession(str(remote))
    state = session.stat(path)
    assert state is not None
    for size in (state.size - 1, state.size + 1):
        with pytest.raises(TransientError):
            fetch(session, str(tmp_path / "local"), path, RemoteStat(size, state.mtime_s))
    assert not [name for name in tree(tmp_path / "local") if "tmp-pull" not in name]


def test_push_sends_what_differs(remote: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    session = FolderSession(str(there))
    assert push(session, str(remote), Selection()).files == 4
    assert tree(there) == tree(remote)
    before = session.written_bytes
    again = push(session, str(remote), Selection())
    assert (again.files, again.same, session.written_bytes) == (0, 4, before)


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.soak)])
def test_verify_finds_every_fault_and_mends_it(node: Node, master: Sshd, count: int) -> None:
    log = node.run(state="finished")
    (log / "progress.csv").write_text("a\n1\n")
    folder = node.item("results")
    for number in range(count):
        (folder / f"{number}.bin").write_bytes(random_bytes(500 + number, number))
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60)
    wait_until((master.root / "log" / ITEM / "SHA256SUMS").exists, 20, "the sums")
    wait_until(lambda: not replication_status(node.state)["targets"][0]["backlog"], 20)
    config = load_config(node.config)
    assert verify_database(node.state, config, node.root) == (count + 3, [])
    chance = random.Random(count)
    expected = {}
    for number in range(count):
        path = master.root / "results" / ITEM / f"{number}.bin"
        data = bytearray(path.read_bytes())
        times = path.stat()
        kind = number % 3
        if kind == 0:
            path.unlink()
        else:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data if kind == 1 else data[: chance.randrange(len(data))])
            os.utime(path, (times.st_atime, times.st_mtime))
        expected[f"results/{ITEM}/{number}.bin"] = ("missing", "content", "size")[kind]
    _, faults = verify_database(node.state, config, node.root)
    assert {fault.path: fault.what for fault in faults} == expected
    _, seen = verify_database(node.state, config, node.root, sizes=True)
    assert {fault.what for fault in seen} == {"missing", "size"}
    edited = master.root / "log" / ITEM / "progress.csv"
    edited.write_text("somebody's own work\n")
    verify_database(node.state, config, node.root, fix=True)
    wait_until(lambda: _equal(node, master), 60, "the faults being mended")
    kept = list(master.root.rglob("*.kept-*"))
    names = {path.name.partition(".kept-")[0] for path in kept}
    other_size = {f"{number}.bin" for number in range(2, count, 3)}  # perhaps somebody's edit
    assert names <= {*other_size, "progress.csv"}
    assert any(path.read_text() == "somebody's own work\n" for path in kept if "progress" in path.name)


def _equal(node: Node, master: Sshd) -> bool:
    there = {path: digest for path, digest in tree(master.root).items() if ".kept-" not in path}
    return there == tree(node.root)


def test_a_damaged_ledger_is_set_aside(tmp_path: Path) -> None:
    from rla_agent.replicate.ledger import Ledger

    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database at all" * 1000)
    ledger = Ledger(path)
    ledger.set_meta("x", 1)
    ledger.close()
    assert (tmp_path / "ledger.db.damaged").exists()
    db = sqlite3.connect(path)
    assert db.execute("SELECT value FROM meta WHERE name = 'x'").fetchone() == (1,)
    db.close()
