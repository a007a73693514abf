"""What `replicate status` and the fleet say where something is broken, or where machines have one name."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.replication_lab import ITEM, Node, Sshd
from support.waiting import wait_until
from typer.testing import CliRunner

from rla_agent.command.replicate import replicate_app
from rla_agent.replicate import report
from rla_agent.replicate.backend.simple import FolderSession
from rla_agent.replicate.backend.target import LinkError, MissingError, TargetError
from rla_agent.replicate.ledger import Ledger, ledger_path
from rla_agent.replicate.report import as_text, attention, headline, replication_status, stopped
from rla_agent.replicate.settings import register
from rla_agent.replicate.worker.main import ESTIMATE_AFTER_S
from rla_client.database.records import fleet_files

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
    ledger.set_meta(report.LIVE_NAME, "{")
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
    done = CliRunner().invoke(replicate_app, ["status"])
    assert (done.exit_code, str(ledger_path(state)) in done.output) == (1, True)
    assert json.loads(CliRunner().invoke(replicate_app, ["status", "--json"]).output)["error"]


def test_a_list_of_databases_that_cannot_be_read_is_told(state: Path) -> None:
    for content in ("{", "[]", '{"databases": [3]}'):
        (state / "replicate" / "databases.json").write_text(content)
        found = replication_status(state)
        assert "the list of databases, cannot be read" in as_text(found)
        assert NOTHING not in as_text(found)


def test_where_nothing_is_replicated_it_says_so(tmp_path: Path) -> None:
    found = replication_status(tmp_path / "not there")
    assert "error" not in found
    assert NOTHING in as_text(found)


def test_machines_of_one_host_name_and_databases_of_one_machine_are_told_apart(
    master: Sshd, make_node: MakeNode, tmp_path: Path
) -> None:
    nodes = [make_node(master.remote(), name) for name in ("one", "two")]
    other = Node(tmp_path / "two-more", master.remote())
    register(nodes[1].state, other.root, other.config)  # a second database of the second machine
    old = master.root / ".rla-fleet" / f"{nodes[0].host}.json"
    old.parent.mkdir()
    old.write_text(json.dumps({"host": nodes[0].host, "runs": []}))  # of an earlier release
    for number, node in enumerate([*nodes, other], 1):
        node.run(ITEM.replace("000001", f"00000{number}"))
    for node in nodes:
        node.start()
    session = FolderSession(str(master.root))

    def three() -> bool:
        found = report.machines(session)
        items = [run["item"][-30:] for machine in found for run in machine["runs"]]
        return len(found) == 3 and len(set(items)) == 3

    wait_until(three, 30, lambda: str(report.machines(session)))
    assert not old.exists()
    lines = [line for line in report.machines_text(report.machines(session)).splitlines() if "seen" in line]
    assert len({line.partition("  seen")[0] for line in lines}) == 3
    assert len({machine["host"] for machine in fleet_files(master.root)}) == 3
    before = sorted(os.listdir(old.parent))
    nodes[0].kill()
    nodes[0].start()
    more = nodes[0].item("results") / "more"
    more.write_bytes(b"more")
    wait_until((master.root / more.relative_to(nodes[0].root)).exists, 20)
    wait_until(lambda: sorted(os.listdir(old.parent)) == before, 20, "the same names after a restart")


def test_old_status_files_of_the_same_host_go_and_no_others(tmp_path: Path) -> None:
    """Each new state folder (a batch job, a container) leaves a file of its own."""
    session, host = FolderSession(str(tmp_path)), "gpu[1]"
    report.remove_old_status(session, host)  # no folder yet
    long_ago = time.time() - report.FLEET_KEPT_S - 60
    old = ["gpu_1_-0123abcd.json"]
    kept = ["gpu_1_-0123abcd-9999ffff.json", "gpu_1_-note.json", "gpu_2_-0123abcd.json", "gpu_1_-0123abcd"]
    report.leave_status(session, host, "89abcdef", b"{}")
    for name in (*old, *kept):
        path = tmp_path / ".rla-fleet" / name
        path.write_bytes(b"{}")
        os.utime(path, (long_ago, long_ago))
    report.remove_old_status(session, host)
    assert sorted(os.listdir(tmp_path / ".rla-fleet")) == sorted([*kept, "gpu_1_-89abcdef.json"])


def test_no_message_calls_the_masters_folder_root() -> None:
    assert str(LinkError("look at", b"", "it is empty")) == "look at the remote root: it is empty"
    assert str(LinkError("connect", b"", "h:22: refused")) == "connect: h:22: refused"
    assert str(MissingError("list", b"log", "not there")) == "list log: not there"
    assert "(root)" not in str(TargetError("list", b"", "x"))


@pytest.mark.slow
def test_no_time_is_told_before_there_is_an_estimate(master: Sshd, make_node: MakeNode) -> None:
    """One large file: what has arrived of it counts, and the first seconds do not tell how fast it is."""
    rate, size = 400_000, 16_000_000
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
