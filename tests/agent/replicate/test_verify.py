"""Comparing the master with a ledger that is written meanwhile."""

from __future__ import annotations

import os
import random
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from support.replication_lab import ITEM, Node, Sshd, random_bytes, same_trees, tree
from support.waiting import wait_until

from rla_agent.command.transfer.verify import verify_database
from rla_agent.replicate import verify
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.verify import verify_ledger
from rla_client.config.schema import load_config
from rla_client.contract.errors import RlaError

FILES = 10


class Checkpointing(FolderSession):
    """At each file, the ledger's log is to be written back, as the replicator does by and by."""

    ledger: Path
    held: int = 0

    def stat(self, path: bytes) -> RemoteStat | None:
        with closing(sqlite3.connect(self.ledger, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")  # no test of the disk
            db.execute("INSERT OR REPLACE INTO meta VALUES('mark', ?)", (os.urandom(8),))
            _, written, taken_over = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self.held += written != taken_over
        return super().stat(path)


def test_the_ledgers_log_does_not_grow_while_it_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "VERIFY_ROWS", 3)
    master, path = tmp_path / "master", tmp_path / "ledger.db"
    ledger = Ledger(path)
    number = ledger.database(b"/data", "folder")
    for kind in ("log", "results"):
        folder = f"{kind}/{ITEM}"
        (master / folder).mkdir(parents=True)
        key = ledger.folder(number, folder.encode(), kind, folder.encode())
        for count in range(FILES):
            name = f"{count}.txt"
            (master / folder / name).write_text(name)
            ledger.mark(Key(key, name.encode()), number, 1, 1, 0.0)
            size, crc = len(name), zlib.crc32(name.encode())
            record = SentRecord(Local(1, size, 1, 1), 0, size, crc, 0, 0, None, 1)
            ledger.sent(Key(key, name.encode()), record, 0.0)
    ledger.close()
    (master / "log" / ITEM / "7.txt").write_text("8.txt")
    session = Checkpointing(str(master))
    session.ledger = path
    with closing(sqlite3.connect(path)) as db:
        count, faults = verify_ledger(session, db, number, sizes=False)
    assert (count, [(fault.path, fault.what) for fault in faults]) == (
        2 * FILES,
        [(f"log/{ITEM}/7.txt", "content")],
    )
    assert session.held == 0


class Growing(FolderSession):
    """Just before a file is looked at, more of it is sent: a row of a run that lives."""

    ledger: Path
    noted: bool  # in the ledger, too; else it is on its way

    def stat(self, path: bytes) -> RemoteStat | None:
        there = Path(os.fsdecode(self._full(path)))
        if there.is_file():
            with there.open("ab") as file:
                file.write(b"more")
            change = "acked = acked + 4" if self.noted else "state = 1"
            with closing(sqlite3.connect(self.ledger)) as db, db:
                db.execute(f"UPDATE files SET {change} WHERE name = ?", (path.rpartition(b"/")[2],))
        return super().stat(path)


@pytest.mark.parametrize("noted", [True, False])
def test_what_is_sent_meanwhile_is_no_fault(tmp_path: Path, noted: bool) -> None:
    master, path = tmp_path / "master", tmp_path / "ledger.db"
    folder = f"log/{ITEM}".encode()
    (master / os.fsdecode(folder)).mkdir(parents=True)
    (master / os.fsdecode(folder) / "progress.csv").write_text("a\n")
    with closing(Ledger(path)) as ledger:
        number = ledger.database(b"/data", "folder")
        key = Key(ledger.folder(number, folder, "log", folder), b"progress.csv")
        ledger.mark(key, number, 1, 1, 0.0)
        ledger.sent(key, SentRecord(Local(1, 2, 1, 1), 0, 2, zlib.crc32(b"a\n"), 0, 0, None, 1), 0.0)
    session = Growing(str(master))
    session.ledger, session.noted = path, noted
    with closing(sqlite3.connect(path)) as db:
        assert verify_ledger(session, db, number, sizes=False) == (1, [])


def test_verify_where_nothing_was_sent_yet_says_so(tmp_path: Path) -> None:
    (tmp_path / "rla_config.yaml").write_text(
        "SEND_LOG_FILE: true\n"
        "REMOTE_SETTING: {ftp_server: 127.0.0.1, username: x, remote_data_root: /tmp/x}\n"
    )
    with pytest.raises(RlaError, match=r"nothing of .* was sent to .* from here"):
        verify_database(tmp_path / "state", load_config(tmp_path / "rla_config.yaml"), tmp_path / "data")
    assert not list(tmp_path.rglob("ledger.db"))


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.soak)])
def test_verify_finds_every_fault_and_repairs_it(node: Node, master: Sshd, count: int) -> None:
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
    wait_until(lambda: _equal(node, master), 60, "the faults being fixed")
    kept = list(master.root.rglob("*.kept-*"))
    names = {path.name.partition(".kept-")[0] for path in kept}
    other_size = {f"{number}.bin" for number in range(2, count, 3)}  # perhaps somebody's edit
    assert names <= {*other_size, "progress.csv"}
    assert any(path.read_text() == "somebody's own work\n" for path in kept if "progress" in path.name)


def _equal(node: Node, master: Sshd) -> bool:
    there = {path: digest for path, digest in tree(master.root).items() if ".kept-" not in path}
    return there == tree(node.root)
