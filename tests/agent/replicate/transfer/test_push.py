"""`push`: what differs goes, and an interrupted one continues."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.faulty_link import Proxy
from support.replication_lab import ITEM, Node, Sshd, items_only, random_bytes, tree

from rla_agent.replicate import target_config
from rla_agent.replicate.backend.errors import FullError, LinkError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.backend.upload import Upload
from rla_agent.replicate.transfer.push import push
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.config.schema import load_config

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


def test_push_sends_what_differs(remote: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    session = FolderSession(str(there))
    assert push(session, str(remote), ItemSelection()).files == 4
    assert tree(there) == tree(remote)
    before = session.written_bytes
    again = push(session, str(remote), ItemSelection())
    assert (again.files, again.same, session.written_bytes) == (0, 4, before)


def test_push_goes_on_where_it_stopped(tmp_path: Path, master: Sshd, proxy: Proxy) -> None:
    """Over a link that is cut in the middle of a large file; nothing is left over."""
    node = Node(tmp_path / "node", master.remote(port=proxy.port))
    node.run()
    (node.item("checkpoint") / "c_1.pt").write_bytes(random_bytes(20_000_000))
    (node.item("results") / "small.bin").write_bytes(b"small")
    config = load_config(node.config)
    budgets = iter([12_000_000])
    proxy.cut_after = lambda: next(budgets, -1)

    def sent() -> int:
        session = target_config.target(config, node.state).open()
        try:
            push(session, str(node.root), ItemSelection())
        finally:
            session.close()
        return session.written_bytes

    with pytest.raises(LinkError):
        sent()
    assert proxy.cuts == 1
    assert sent() < 15_000_000  # without the first part, less what was in flight
    assert items_only(tree(master.root)) == items_only(tree(node.root))


def test_a_full_master_ends_a_push_with_words(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()

    class Full(FolderSession):
        def _place(self, job: Upload, *, durable: bool = True) -> RemoteStat:
            del durable
            raise FullError("send", job.path, "the master's disk is full", "free space on the master")

    node = Node(tmp_path / "node", {})
    node.run()
    (node.item("results") / "x.bin").write_bytes(bytes(1_000_000))
    tally = push(Full(str(there)), str(node.root), ItemSelection())
    assert tally.files == 0
    assert len(tally.failed) == 2
    assert all("disk is full" in line for line in tally.failed)
