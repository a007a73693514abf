"""Comparing the master with a ledger that is written meanwhile."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from support.replication_lab import ITEM

from rla_agent.replicate import verify
from rla_agent.replicate.backend.simple import FolderSession
from rla_agent.replicate.backend.target import RemoteStat
from rla_agent.replicate.ledger import Key, Ledger
from rla_agent.replicate.verify import settle, verify_ledger
from rla_agent.replicate.worker.plan import Local, Record
from rla_agent.replicate.worker.source import Source
from rla_client.contract.filesystem.safe_paths import open_root
from rla_client.contract.process.descriptors import closing_fd

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
            record = Record(Local(1, size, 1, 1), 0, size, crc, 0, 0, None, 1)
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


def test_sums_are_not_made_of_what_was_written_a_moment_ago(tmp_path: Path) -> None:
    """A look at the logs has seen the run's end, and not yet what came before it in another folder."""
    path = tmp_path / "results" / ITEM / "picture"
    path.parent.mkdir(parents=True)
    (tmp_path / "log" / ITEM).mkdir(parents=True)
    path.write_bytes(b"first")
    ledger = Ledger(tmp_path / "ledger.db")
    number = ledger.database(os.fsencode(tmp_path), "folder")
    below = os.fsencode(path.parent.relative_to(tmp_path))
    key = Key(ledger.folder(number, below, "results", below), b"picture")

    def send() -> None:
        ledger.mark(key, number, 1, 1, 0.0)
        with closing(Source(root, below + b"/picture")) as source:
            source.skip_to(5)
            ledger.sent(key, source.record(0, 5, 1), 0.0)

    with closing_fd(open_root(os.fsencode(tmp_path))) as root:
        send()
        path.write_bytes(b"newer")
        assert settle(ledger, number, os.fsencode(tmp_path), root, ITEM) is None
        assert [row.waiting for row in ledger.item_files(number, ITEM)] == [True]
        send()
        os.utime(path)  # another time alone is no other version
        sums = settle(ledger, number, os.fsencode(tmp_path), root, ITEM)
        assert sums == os.fsencode(f"log/{ITEM}/SHA256SUMS")
        assert hashlib.sha256(b"newer").hexdigest() in (tmp_path / os.fsdecode(sums)).read_text()
    ledger.close()
