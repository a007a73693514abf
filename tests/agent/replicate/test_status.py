"""What `replicate status` and the fleet say where something is broken, or where machines have one name."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.replication_lab import Node, Sshd
from support.waiting import wait_until
from typer.testing import CliRunner

from rla_agent.command.app import make_app
from rla_agent.replicate import status
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_schema import ledger_path
from rla_agent.replicate.problems import attention, stopped
from rla_agent.replicate.registry import register
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.status_text import as_text, headline
from rla_agent.replicate.worker.served_database import ESTIMATE_AFTER_S

MakeNode = Callable[..., Node]
NOTHING = "no database is replicated"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that has sent something once."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    register(folder, tmp_path / "data", tmp_path / "rla_config.yaml")
    Ledger(ledger_path(folder)).close()
    monkeypatch.setenv("RLA_STATE_DIR", str(folder))
    return folder


def not_a_database(path: Path) -> None:
    path.write_bytes(b"no database at all " * 500)


def of_a_later_release(path: Path) -> None:
    import sqlite3

    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def without_tables(path: Path) -> None:
    path.write_bytes(b"")


def a_broken_snapshot(path: Path) -> None:
    ledger = Ledger(path)
    ledger.set_meta(status.LIVE_NAME, "{")
    ledger.close()


@pytest.mark.parametrize(
    "broken", [not_a_database, of_a_later_release, a_folder, without_tables, a_broken_snapshot]
)
def test_a_ledger_that_cannot_be_read_is_told(
    state: Path, tmp_path: Path, broken: Callable[[Path], None]
) -> None:
    broken(ledger_path(state))
    found = replication_status(state)
    assert str(ledger_path(state)) in found["error"]
    text = as_text(found)
    assert found["error"] in text
    assert NOTHING not in text
    assert f"{tmp_path / 'data'}: what is sent and what waits is not known" in text
    assert "replication: unknown" in text
    assert attention(found)[0]["what"] == found["error"]
    assert found["error"] in stopped(found)["status"]
    assert headline(found) == []
    app = make_app("replicate")
    done = CliRunner().invoke(app, ["replicate", "status"])
    assert (done.exit_code, str(ledger_path(state)) in done.output) == (1, True)
    assert json.loads(CliRunner().invoke(app, ["replicate", "status", "--json"]).output)["error"]


def test_a_list_of_databases_that_cannot_be_read_is_told(state: Path) -> None:
    for content in ("{", "[]", '{"databases": [3]}'):
        (state / "replicate" / "databases.json").write_text(content)
        found = replication_status(state)
        assert "the list of databases, cannot be read" in as_text(found)
        assert NOTHING not in as_text(found)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "replicate").write_text("")
    assert "databases.json" in replication_status(tmp_path)["error"]


def test_a_database_that_no_replicator_has_begun_is_named(tmp_path: Path) -> None:
    register(tmp_path, tmp_path / "data", tmp_path / "rla_config.yaml")
    shown = as_text(replication_status(tmp_path))
    assert f"{tmp_path}/data: nothing was sent yet" in shown
    assert "no database is replicated" not in shown


def test_where_nothing_is_replicated_it_says_so(tmp_path: Path) -> None:
    found = replication_status(tmp_path / "not there")
    assert "error" not in found
    assert NOTHING in as_text(found)


@pytest.mark.further
@pytest.mark.slow
def test_no_time_is_told_before_there_is_an_estimate(master: Sshd, make_node: MakeNode) -> None:
    """One large file: what has arrived of it counts, and the first seconds do not tell how fast it is."""
    rate, size = 400_000, 10_000_000
    node = make_node(master.remote(rate_limit_bytes_s=rate, connections=2))
    node.run(state="finished")
    (node.item("checkpoint") / "c_1.pt").write_bytes(bytes(size))
    node.start()
    began: list[float] = []
    early: list[float] = []

    def estimate() -> float | None:
        targets = replication_status(node.state)["targets"]
        if targets and targets[0]["backlog"].get("checkpoint") and not began:
            began.append(time.monotonic())
        found: float | None = targets[0].get("eta_s") if targets else None
        if found is not None and time.monotonic() - began[0] < ESTIMATE_AFTER_S - 2:
            early.append(found)
        return found

    eta = wait_until(estimate, 60, "an estimate")
    assert early == []
    left = size / rate - (time.monotonic() - began[0])
    assert left / 2.5 < eta < left * 2.5
    wait_until(lambda: estimate() is None and not list(master.root.rglob(".rla-tmp*")), 120, "its end")
