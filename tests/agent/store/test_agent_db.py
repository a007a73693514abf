"""agent.db: all or nothing, and what becomes of a damaged one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rla_agent.model.records import Position
from rla_agent.model.run_record import RunRecord
from rla_agent.store import agent_db as agent_db_module
from rla_agent.store.agent_db import KEPT_RUNS_S, AgentDatabase, CommitChanges, FiringRow, JobRow, OutputRow
from rla_agent.store.sqlite import MOST_BROKEN, open_or_replace

ROW = OutputRow("csv", "/x/progress.csv", 2, 99, Position(3, 4), {"rows": 5}, ".rla-tmp-1")


def test_what_was_committed_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    job = JobRow("s", Position(1, 2), "figure", b"\x80")
    record = RunRecord("r", "/data", "t", "i", "/data/log/t/i", "h", "u", 1, 1.5, "0")
    plain = record.to_plain(2.0)
    with closing(AgentDatabase(path)) as database:
        run = ("r", 1.0, True, plain)
        database.commit(CommitChanges(outputs=[("s", ROW)], jobs=[job], done=[("t", 1.0)], runs=[run]))
    with closing(AgentDatabase(path)) as database:
        assert database.outputs_of("s") == {"csv": ROW}
        assert database.intents() == {".rla-tmp-1"}
        assert database.jobs_of("s") == [job]
        assert database.is_done("t")
        assert database.run("r") == plain
        database.commit(CommitChanges(forgotten=["s", "t"], jobs_done=[("s", job.position)]))
        assert not database.outputs_of("s")
        assert not database.jobs_of("s")
        assert not database.is_done("t")


def test_who_only_looks_makes_no_database_and_changes_none(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with pytest.raises(sqlite3.OperationalError):
        AgentDatabase(path, readonly=True)
    assert not path.exists()
    with closing(AgentDatabase(path)) as owner:
        owner.commit(CommitChanges(done=[("t", 1.0)]))
        with closing(AgentDatabase(path, readonly=True)) as looking:
            assert looking.is_done("t")
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                looking.commit(CommitChanges(done=[("u", 1.0)]))


def test_a_failed_commit_stores_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        bad = JobRow("s", Position(1, 2), "k", {"no": "bytes"})  # type: ignore[arg-type]
        with pytest.raises(sqlite3.Error):
            database.commit(CommitChanges(outputs=[("s", ROW)], jobs=[bad]))
        assert not database.outputs_of("s")
        database.commit(CommitChanges(outputs=[("s", ROW)]))
        assert database.outputs_of("s") == {"csv": ROW}


def test_firings_that_nobody_takes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alerts have ended, or a metric flaps: the positions go on, and agent.db does not grow."""
    monkeypatch.setattr(agent_db_module, "MAX_FIRINGS", 5)
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        for number in range(3):
            fired = [FiringRow("s", "run", number, offset, "rule", {}) for offset in range(3)]
            database.commit(CommitChanges(outputs=[("s", ROW)], firings=fired))
        firings = database.firings()
        assert [(one["number"], one["offset"]) for _, _, one in firings] == [
            (0, 0),
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 1),
        ]
        database.drop_firings([("s", 0, 0, "rule")])
        database.commit(CommitChanges(firings=[FiringRow("s", "run", 9, 9, "rule", {})]))
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
        database.commit(CommitChanges(outputs=rows))
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
        database.commit(CommitChanges(outputs=[("s", ROW)]))
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
        database.commit(CommitChanges(outputs=[("s", ROW)]))
    database, aside = open_or_replace(path, AgentDatabase)
    with closing(database):
        assert not aside
        assert database.outputs_of("s") == {"csv": ROW}


def ended(run: str, updated: float, *, live: bool = False) -> tuple[str, float, bool, dict[str, Any]]:
    plain = RunRecord(run, "/data", "t", "i", "/data/log/t/i", "h", "u", 1, 1.5, "0").to_plain(updated)
    return run, updated, live, plain


def runs_in(database: AgentDatabase) -> set[str]:
    return {str(run) for (run,) in database._db.execute("SELECT run FROM runs")}


def test_ended_runs_are_trimmed_while_others_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a restart; live ones stay, and so do those of the last hour, which alerts may not have seen."""
    monkeypatch.setattr(agent_db_module, "KEPT_RUNS", 3)
    monkeypatch.setattr(agent_db_module, "TRIMMED_AT_ONCE", 2)
    now = 1e9
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.commit(CommitChanges(runs=[ended(f"old{n}", now - 2 * KEPT_RUNS_S + n) for n in range(8)]))
        database.commit(CommitChanges(runs=[ended("live", now - 9 * KEPT_RUNS_S, live=True)]))
        database.commit(CommitChanges(runs=[ended(f"new{n}", now - 5 + n) for n in range(5)]))
        late = {f"new{n}" for n in range(5)} | {"live"}
        assert runs_in(database) == late | {f"old{n}" for n in (0, 1, 2, 5, 6, 7)}, "two at a time"
        database.commit(CommitChanges(runs=[ended("new5", now)]))
        database.commit(CommitChanges(runs=[ended("new6", now)]))
        assert runs_in(database) == late | {"new5", "new6", "old5", "old6", "old7"}
        assert [plain["run_id"] for plain in database.ended_runs(3)] == ["new6", "new5", "new4"]
        database.drop_old_runs(now + 2 * KEPT_RUNS_S)
        assert runs_in(database) == {"live", "new4", "new5", "new6"}


def test_what_is_asked_of_runs_again_and_again_reads_no_whole_table(tmp_path: Path) -> None:
    """`status` and alerts, each second, with some ten thousand runs of an hour."""
    said: list[str] = []
    with closing(AgentDatabase(tmp_path / "agent.db")) as database:
        database.commit(CommitChanges(runs=[ended(f"r{n}", float(n)) for n in range(50)]))
        database._db.set_trace_callback(said.append)
        assert len(database.ended_runs(10)) == 10
        assert len(database.runs_since(40.0)) == 10
        assert len(list(database.runs())) == 50
        database.commit(CommitChanges(runs=[ended("another", 1e9)]))
        database._db.set_trace_callback(None)
        about_runs = [one for one in said if one.startswith(("SELECT", "DELETE")) and " runs" in one]
        assert len(about_runs) == 4
        for statement in about_runs:
            plan = [row[3] for row in database._db.execute(f"EXPLAIN QUERY PLAN {statement}")]
            assert any("INDEX runs_updated" in step for step in plan), (statement, plan)
            assert not any("TEMP B-TREE FOR ORDER BY" in step for step in plan), (statement, plan)
