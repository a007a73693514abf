"""Files of earlier releases open as they are, and of later ones not at all."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from rla_agent.alerts.alert_store import STEPS as ALERT_STEPS
from rla_agent.alerts.alert_store import AlertStore
from rla_agent.model.records import Position
from rla_agent.replicate.file_state import Local, SentRecord
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key
from rla_agent.replicate.ledger_schema import STEPS as LEDGER_STEPS
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.status import replication_status
from rla_agent.store.agent_db import STEPS, AgentDatabase
from rla_agent.store.sqlite import EarlierFormatError, NewerFormatError, migrate

DATA = Path(__file__).parent / "data"
RELEASES = ["without_modes", "with_modes"]
ITEM = b"log/task/2026/11/21/09-30-01-000001_10.0.0.5_x"


def old_file(name: str, path: Path) -> Path:
    """What an earlier release wrote, by `.dump`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript((DATA / f"{name}.sql").read_text())
    return path


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


@pytest.mark.parametrize("release", RELEASES)
def test_positions_and_jobs_of_an_earlier_release_are_kept(release: str, tmp_path: Path) -> None:
    path = old_file(f"agent_{release}", tmp_path / "agent.db")
    for _ in range(2):
        with closing(AgentDatabase(path)) as database:
            (output,) = database.outputs_of("s1").values()
            assert (output.size, output.generation, output.position) == (100, 2, Position(3, 400))
            assert [job.fields for job in database.jobs_of("s1")] == [b"\x80fields"]
            assert database.is_done("s0")
            found = database.run("r")
            assert found is not None
            assert (found["run_id"], found["state"], found["opened"]) == ("r", "running", 1.0)
    assert version(path) == len(STEPS)


@pytest.mark.parametrize("release", RELEASES)
def test_what_an_earlier_release_sent_is_not_sent_again(release: str, tmp_path: Path) -> None:
    path = old_file(f"ledger_{release}", tmp_path / "ledger.db")
    for _ in range(2):
        ledger = Ledger(path)
        number = ledger.database(b"/data", "folder:/master")
        folder = ledger.folder(number, ITEM, "log", ITEM)
        sha = hashlib.sha256(b"x").digest()
        known = SentRecord(Local(7, 10, 11, 12), 2, 10, 13, 14, 15, sha, 16)
        assert ledger.record(Key(folder, b"progress.csv")) == known
        states = ledger.states(number, ITEM)
        assert {name: row[0] for name, row in states.items()} == {b"progress.csv": 0, b"\xff.txt": 2}
        assert [temp.temp for temp in ledger.temps(number)] == [b"tmp"]
        ledger.set_folder_mode(folder, 0o700)
        assert ledger.folder_mode(folder) == 0o700
        ledger.close()
    assert version(path) == len(LEDGER_STEPS)


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


def test_alerts_of_releases_before_versions_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "alerts.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(str(ALERT_STEPS[0]))
        db.execute("INSERT INTO runs VALUES('r', 'finished@1', 5.0)")
        db.execute("INSERT INTO deliveries(alert,config,channel,next_at,made) VALUES('k','c','mail',1,1)")
        db.execute("INSERT INTO alerts VALUES('k', 1.0, '{}')")
        db.commit()
    for _ in range(2):
        store = AlertStore(path)
        assert not store.run_changed("r", "finished@1", 6.0), "it would be told again"
        assert store.waiting() == 1
        store.close()
        assert version(path) == len(ALERT_STEPS)


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
