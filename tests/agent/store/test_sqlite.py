"""Files of later releases do not open; steps to a newer version run as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rla_agent.alerts.alert_store import AlertStore
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.status import replication_status
from rla_agent.store.agent_db import STEPS, AgentDatabase
from rla_agent.store.sqlite import EarlierFormatError, NewerFormatError, migrate


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("opened", [AgentDatabase, Ledger, AlertStore])
def test_a_file_of_a_later_release_is_refused_and_left_alone(
    opened: Callable[[Path], object], tmp_path: Path
) -> None:
    path = ledger_path(tmp_path)
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE later(x)")
        db.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(NewerFormatError, match=r"version 99.*upgrade rla-agent") as caught:
        opened(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert [left.name for left in path.parent.iterdir()] == ["ledger.db"]
    assert "version 99" in replication_status(tmp_path)["error"]


def test_steps_that_fail_leave_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    steps = ("CREATE TABLE a(x); CREATE TABLE b(x);", "CREATE TABLE c(x); no statement;")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        migrate(db, path, steps[:1])
        with pytest.raises(sqlite3.Error):
            migrate(db, path, steps)
        assert [row[0] for row in db.execute("SELECT name FROM sqlite_schema ORDER BY name")] == ["a", "b"]
    assert version(path) == 1


def test_only_who_holds_the_lock_upgrades_what_an_earlier_agent_may_serve(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    AgentDatabase(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {len(STEPS) - 1}")
        db.commit()
    with pytest.raises(EarlierFormatError, match="rla-agent restart"):
        AgentDatabase(path, beside=True)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(STEPS) - 1,)
