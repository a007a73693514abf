"""The ledger's file: whole for whoever reads it, begun anew only where it is no database any more."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rla_agent.replicate import ledger_schema as ledger_schema_module
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.status import replication_status
from rla_client.contract.errors import RlaError


def test_a_damaged_ledger_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"no database at all" * 1000)
    ledger = Ledger(path)
    ledger.set_meta("x", 1)
    ledger.close()
    assert (tmp_path / "ledger.db.broken").exists()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT value FROM meta WHERE name = 'x'").fetchone() == (1,)


def test_one_whose_pages_are_damaged_is_set_aside_and_each_is_kept(tmp_path: Path) -> None:
    """The worker ended with an error each time, for ever; a second one took the place of the first."""
    path = tmp_path / "ledger.db"
    for number in (1, 2):
        with closing(Ledger(path)) as ledger:
            ledger.set_meta("n", number)
        with path.open("r+b") as file:
            for page in range(1, path.stat().st_size // 4096):
                file.seek(page * 4096)
                file.write(b"\xff" * 300)
        with closing(Ledger(path)) as begun:
            assert begun.put_aside
            assert begun._row("SELECT value FROM meta WHERE name = 'n'") is None
    assert {aside.name for aside in tmp_path.glob("*.broken*")} == {"ledger.db.broken", "ledger.db.broken-2"}


def test_one_that_somebody_holds_is_not_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_schema_module, "OPEN_WAIT_S", 0.1)
    path = tmp_path / "ledger.db"
    Ledger(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(RlaError, match="locked; retrying"):
            Ledger(path)
    assert sorted(left.name for left in tmp_path.iterdir() if "broken" in left.name) == []


def test_who_looks_while_it_begins_sees_no_half_of_it(tmp_path: Path) -> None:
    """`status` said that it cannot be read: no such table."""
    states, ended, errors = [tmp_path], threading.Event(), set()

    def look() -> None:
        while not ended.is_set():
            errors.add(replication_status(states[-1]).get("error", ""))

    looker = threading.Thread(target=look)
    looker.start()
    for number in range(30):
        states.append(tmp_path / str(number))  # one place only once: a reader keeps the files beside it
        Ledger(ledger_path(states[-1])).close()
    ended.set()
    looker.join()
    assert errors == {""}


def test_what_a_killed_begin_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with closing(sqlite3.connect(tmp_path / "ledger.db.new", isolation_level=None)) as left:
        left.execute("PRAGMA journal_mode = WAL")
        left.execute("CREATE TABLE meta(other)")
        Ledger(path).close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ledger.db"]


def test_the_changes_of_a_ledger_that_is_gone_do_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    old = Ledger(path)
    old.set_meta("old", 1)
    old.commit()
    path.unlink()  # its -wal is left, as after a SIGKILL
    assert (tmp_path / "ledger.db-wal").stat().st_size > 0
    begun = Ledger(path)
    assert begun._row("SELECT value FROM meta WHERE name = 'old'") is None
    begun.close()
    old._db.close()
