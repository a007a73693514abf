"""Repair of what a verification found."""

from __future__ import annotations

import os
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from support.replication_lab import ITEM

from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.repair import repair
from rla_agent.replicate.verify import verify_ledger


def test_what_was_sent_since_the_look_is_not_sent_again(tmp_path: Path) -> None:
    master, path = tmp_path / "master", tmp_path / "ledger.db"
    folder = f"log/{ITEM}".encode()
    (master / os.fsdecode(folder)).mkdir(parents=True)
    sent = SentRecord(Local(1, 2, 1, 1), 0, 2, zlib.crc32(b"a\n"), 0, 0, None, 1)
    with closing(Ledger(path)) as ledger, closing(sqlite3.connect(path)) as db:
        number = ledger.database(b"/data", "folder")
        for name in (b"again", b"missing"):
            key = Key(ledger.folder(number, folder, "log", folder), name)
            ledger.mark(key, number, 1, 1, 0.0)
            ledger.sent(key, sent, 1.0)
        ledger.commit()
        _, faults = verify_ledger(FolderSession(str(master)), db, number, sizes=True)
        assert [fault.what for fault in faults] == ["missing", "missing"]
        ledger.sent(Key(faults[0].key.folder, b"again"), sent, 2.0)
        ledger.commit()
        assert repair(db, faults) == 1
        assert db.execute("SELECT name FROM files WHERE state = 1").fetchall() == [(b"missing",)]
