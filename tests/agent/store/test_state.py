"""agent.db: all or nothing, and what becomes of a damaged one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rla_agent.model.ingest import Position
from rla_agent.model.states import RunRecord
from rla_agent.store import database as database_module
from rla_agent.store.database import (
    MOST_BROKEN,
    AgentDatabase,
    Changes,
    FiringRow,
    JobRow,
    OutputRow,
    open_or_replace,
)

ROW = OutputRow("csv", "/x/progress.csv", 2, 99, Position(3, 4), {"rows": 5}, ".rla-tmp-1")


def test_what_was_committed_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    job = JobRow("s", Position(1, 2), "figure", b"\x80")
    record = RunRecord("r", "/data", "t", "i", "/data/log/t/i", "h", "u", 1, 1.5, "0")
    plain = record.to_plain(2.0)
    with closing(AgentDatabase(path)) as database:
        run = ("r", 1.0, True, plain)
        database.commit(Changes(outputs=[("s", ROW)], jobs=[job], done=[("t", 1.0)], runs=[run]))
    with closing(AgentDatabase(path)) as database:
        assert database.outputs_of("s") == {"csv": ROW}
        assert database.intents() == {".rla-tmp-1"}
        assert database.jobs_of("s") == [job]
        assert database.is_done("t")
        assert database.run("r") == plain
        database.commit(Changes(forgotten=["s", "t"], jobs_done=[("s", job.position)]))
        assert not database.outputs_of("s")
        assert not database.jobs_of("s")
        assert not database.is_done("t")


def test_a_failed_commit_stores_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        bad = JobRow("s", Position(1, 2), "k", {"no": "bytes"})  # type: ignore[arg-type]
        with pytest.raises(sqlite3.Error):
            database.commit(Changes(outputs=[("s", ROW)], jobs=[bad]))
        assert not database.outputs_of("s")
        database.commit(Changes(outputs=[("s", ROW)]))
        assert database.outputs_of("s") == {"csv": ROW}


def test_firings_that_nobody_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts have ended, or a metric flaps: the positions go on, and agent.db does not grow."""
    monkeypatch.setattr(database_module, "MAX_FIRINGS", 5)
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        for number in range(3):
            fired = [FiringRow("s", "run", number, offset, "rule", {}) for offset in range(3)]
            database.commit(Changes(outputs=[("s", ROW)], firings=fired))
        firings = database.firings()
        assert [(one["number"], one["offset"]) for _, _, one in firings] == [
            (0, 0),
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 1),
        ]
        database.drop_firings([("s", 0, 0, "rule")])
        database.commit(Changes(firings=[FiringRow("s", "run", 9, 9, "rule", {})]))
        assert len(database.firings()) == 5
        assert database.outputs_of("s") == {"csv": ROW}


def test_the_log_is_grown_once(tmp_path: Path) -> None:
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.grow_wal()
        assert (tmp_path / "agent.db-wal").stat().st_size > 4 << 20


@pytest.mark.parametrize("damage", ["garbage", "pages", "page pointer"])
def test_a_damaged_file_is_put_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "agent.db"
    with closing(AgentDatabase(path)) as database:
        rows = [(f"s{number}", ROW) for number in range(2000)]
        database.commit(Changes(outputs=rows))
    content = bytearray(path.read_bytes())
    if damage == "garbage":
        content[:] = b"no database" * 1000
    elif damage == "pages":
        content[4096:] = b"\xee" * (len(content) - 4096)
    else:
        content[8 * 4096 : 8 * 4096 + 8] = b"\x0d\xff\xff\xff\xff\xff\xff\xff"
    path.write_bytes(content)
    database, aside = open_or_replace(path, AgentDatabase)
    with closing(database):
        assert aside == str(tmp_path / "agent.db.broken")
        assert Path(aside).read_bytes() == content
        assert not database.outputs_of("s1")
        database.commit(Changes(outputs=[("s", ROW)]))
    for number in range(2, MOST_BROKEN + 2):
        path.write_bytes(b"no database" * number)
        database, aside = open_or_replace(path, AgentDatabase)
        database.close()
        kept = min(number, MOST_BROKEN)
        assert aside == str(tmp_path / f"agent.db.broken-{kept}")
    assert (tmp_path / "agent.db.broken").read_bytes() == content, "the first one stays"


def test_a_sound_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with closing(AgentDatabase(path)) as database:
        database.commit(Changes(outputs=[("s", ROW)]))
    database, aside = open_or_replace(path, AgentDatabase)
    with closing(database):
        assert not aside
        assert database.outputs_of("s") == {"csv": ROW}
