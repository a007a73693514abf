"""`rla rm --master`: to the master's trash, and nobody sends it again."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.prune_lab import wait_clean
from support.replication_lab import ITEM, Node, Sshd, finished_item, tree, wait_same
from support.waiting import wait_until

from rla_agent.command.transfer.verify import verify_database
from rla_agent.replicate import command_markers, master_trash, registry, tombstones
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.ledger import burial
from rla_agent.replicate.status import replication_status
from rla_client.config.schema import load_config
from rla_client.contract.errors import ArgumentError, LiveRunError
from rla_client.contract.layout import DEFAULT_LOG_TYPES, FOLDER_KINDS
from rla_client.database.changes.change_lock import changing
from rla_client.database.changes.trash import restore_trash, trash_entries

OTHER = "task/2026/11/21/09-30-01-000002_10.0.0.5_&lr=0.002"


REMOVE = """
import sys
from pathlib import Path
from rla_client.database.changes.master_trash import remove_on_master
from rla_client.database.tree.items import run_items
root, config, item = sys.argv[1:]
table, _, index = item.partition("/")
remove_on_master(Path(root), run_items(Path(root), table, index), Path(config))
"""


def rla(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    code = "from rla_client.cli.app import main; main()"
    return _run(node, [sys.executable, "-c", code, *words])


def transfer(node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    return _run(node, [sys.executable, "-m", "rla_agent", "transfer", *words])


def _run(node: Node, command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, "RLA_STATE_DIR": str(node.state), "HOME": str(node.folder)},
        cwd=node.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def of_item(found: dict[str, str], item: str = ITEM) -> dict[str, str]:
    return {path: sha for path, sha in found.items() if item in path and not path.startswith(".rla/")}


def looked_at_everything(node: Node, master: Sshd) -> None:
    """Until a rescan that began now is over and everything due has gone."""
    item = f"task/2026/11/21/09-30-02-{time.time_ns() % 1_000_000:06}_10.0.0.5_&"
    node.run(item, "finished")
    for kind in FOLDER_KINDS:
        (node.item(kind, item) / "mark.txt").write_text(kind)
    announcer = Announcer(node.state)
    announcer.now(())
    announcer.close()
    for kind in FOLDER_KINDS:
        wait_until((master.root / kind / item / "mark.txt").exists, 40, "a new item on the master")

    def idle() -> bool:
        (target,) = replication_status(node.state)["targets"]
        return not any(kind["files"] for kind in target["backlog"].values())

    wait_until(idle, 20, what="an empty backlog")


@pytest.fixture
def sent(node: Node, master: Sshd) -> Node:
    finished_item(node, files=9)
    node.run(OTHER, "finished")
    (node.item("archive_tester", OTHER).parent / (Path(OTHER).name + ".json")).write_text("{}")
    node.item("archive_tester", OTHER).rmdir()
    node.start()
    for item in (ITEM, OTHER):
        wait_until((master.root / "log" / item / "SHA256SUMS").exists, 30)
    wait_same(node, master.root, 30)
    wait_clean(node)  # a file is there a moment before it is in the ledger
    return node


@pytest.mark.slow
def test_removed_there_and_never_sent_again(sent: Node, master: Sshd) -> None:
    there = of_item(tree(master.root))
    done = rla(sent, "rm", ITEM, "--master", "--yes", "--data-root", str(sent.root))
    assert done.returncode == 0, done.stderr
    assert "to the trash of sftp://" in done.stdout
    assert of_item(tree(master.root)) == {}
    (entry,) = trash_entries(master.root)
    kept = tree(master.root / ".rla" / "trash" / entry.name / "items")
    assert kept == there
    assert (
        rla(sent, "trash", "restore", trash_entries(sent.root)[0].name, "-d", str(sent.root)).returncode == 0
    )
    os.utime(sent.root / "checkpoint" / ITEM / "checkpoint_100.pt")
    (sent.root / "results" / ITEM / "new.txt").write_text("new")
    (sent.root / "archive_tester" / f"{ITEM}.json").write_text('{"new": 1}')
    looked_at_everything(sent, master)
    sent.stop()
    sent.start()
    looked_at_everything(sent, master)
    assert of_item(tree(master.root)) == {}
    assert (master.root / "archive_tester" / f"{OTHER}.json").exists()
    _, faults = verify_database(sent.state, load_config(sent.config), sent.root)
    assert faults == []
    assert replication_status(sent.state)["parked"] == []
    command_markers.ask_retry(sent.state)
    looked_at_everything(sent, master)
    assert of_item(tree(master.root)) == {}


@pytest.mark.slow
def test_another_node_that_holds_a_copy_does_not_send_it(
    sent: Node, master: Sshd, make_node: Callable[..., Node]
) -> None:
    other = make_node(master.remote(), "other", host="node-b")
    shutil.copytree(sent.root, other.root, dirs_exist_ok=True)
    sums = other.root / "log" / ITEM / "SHA256SUMS"
    sums.unlink()
    registry.add(other.state, other.root, other.config)  # every item of it goes, whoever made it
    assert (
        transfer(sent, "remove", ITEM, "--config", str(sent.config), "--data-root", str(sent.root)).returncode
        == 0
    )
    other.start()
    for _ in range(2):  # the sums of what is sent in one look are made before the next
        looked_at_everything(other, master)
    assert of_item(tree(master.root)) == {}
    assert of_item(tree(master.root), OTHER)
    assert not sums.exists(), "sums of what the master does not have"


@pytest.mark.slow
def test_an_agent_that_is_still_sending_stops(node: Node, master: Sshd) -> None:
    """Removed while a large file is on its way: the rest is not sent, and nothing is made anew."""
    node.remote = master.remote(rate_limit_bytes_s=1_500_000)
    node.write_config()
    finished_item(node, files=9)
    node.start()
    wait_until(lambda: list((master.root / "checkpoint" / ITEM).glob(".rla-tmp-*")), 40, "a temp file")
    done = transfer(node, "remove", ITEM, "--config", str(node.config), "--data-root", str(node.root))
    assert done.returncode == 0, done.stderr
    looked_at_everything(node, master)
    assert of_item(tree(master.root)) == {}


@pytest.mark.slow
def test_restored_it_is_sent_again(sent: Node, master: Sshd) -> None:
    there = of_item(tree(master.root))
    where = ("--config", str(sent.config))
    assert transfer(sent, "remove", ITEM, *where, "--data-root", str(sent.root)).returncode == 0
    listed = transfer(sent, "trash", *where).stdout
    name = listed.split()[0]
    assert "item(s)" in listed
    assert transfer(sent, "trash", "--restore", name, *where).returncode == 0
    assert of_item(tree(master.root)) == there
    assert not list((master.root / ".rla" / "tombstones").glob("*.json"))
    (sent.root / "results" / ITEM / "later.txt").write_text("later")
    looked_at_everything(sent, master)
    wait_until((master.root / "results" / ITEM / "later.txt").exists, 20, "a file sent after the restore")


@pytest.mark.further
@pytest.mark.slow
def test_one_that_the_master_never_had_can_be_allowed_again(sent: Node, master: Sshd) -> None:
    """Removed before it was sent, brought back from the trash here, and wanted there after all."""
    sent.stop()
    late = "task/2026/11/21/09-30-05-000001_10.0.0.5_&"
    sent.run(late, "finished")
    done = rla(sent, "rm", late, "--master", "--yes", "--data-root", str(sent.root))
    assert done.returncode == 0, done.stderr
    assert "had nothing of these runs" in done.stdout
    assert f"rla-agent transfer allow --config {sent.config} '{late}'" in done.stdout
    name = trash_entries(sent.root)[0].name
    assert rla(sent, "trash", "restore", name, "-d", str(sent.root)).returncode == 0
    sent.start()
    looked_at_everything(sent, master)
    assert of_item(tree(master.root), late) == {}
    allowed = transfer(sent, "allow", late, "--config", str(sent.config))
    assert allowed.returncode == 0, allowed.stderr
    assert "took 1 tombstone(s) off sftp://" in allowed.stdout
    wait_until((master.root / "log" / late / "run.json").exists, 40, "the run on the master")
    again = transfer(sent, "allow", late, "--config", str(sent.config))
    assert "has no tombstone of these runs" in again.stdout
    assert transfer(sent, "allow", "../x", "--config", str(sent.config)).returncode == 2


def test_a_run_that_is_written_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log" / ITEM
    log.mkdir(parents=True)
    (log / "run.json").write_text(json.dumps({"state": "running", "updated": 1000.0, "host": "b"}))
    session = FolderSession(str(tmp_path))
    with pytest.raises(LiveRunError, match="is being written on b"):
        master_trash.move_to_trash(session, [ITEM], DEFAULT_LOG_TYPES, {}, 1100.0)
    assert not (tmp_path / ".rla").exists()
    entry = master_trash.move_to_trash(session, [ITEM], DEFAULT_LOG_TYPES, {}, 2000.0)
    assert [old for old, _ in entry.moves] == [f"log/{ITEM}".encode()]
    with pytest.raises(ArgumentError):
        master_trash.move_to_trash(session, ["../../etc"], DEFAULT_LOG_TYPES, {}, 2000.0)
    with pytest.raises(ArgumentError):
        master_trash.restore(session, "none")


def test_the_masters_own_rla_restores_and_empties_it(tmp_path: Path) -> None:
    for kind in ("log", "results"):
        (tmp_path / kind / ITEM).mkdir(parents=True)
        (tmp_path / kind / ITEM / "file.txt").write_text(kind)
    session = FolderSession(str(tmp_path))
    now = time.time()
    entry = master_trash.move_to_trash(session, [ITEM], ("log", "results"), {"host": "a"}, now)
    assert [one.name for one in trash_entries(tmp_path)] == [entry.name]
    with changing(tmp_path, now):
        assert restore_trash(tmp_path, entry.name) == 2
    assert (tmp_path / "log" / ITEM / "file.txt").read_text() == "log"
    assert tombstones.is_buried(session, f"log/{ITEM}".encode())
    assert not tombstones.is_buried(session, f"code/{ITEM}".encode())
    again = master_trash.move_to_trash(session, [ITEM], ("log", "results"), {}, now)
    assert master_trash.empty(session, 3600, now) == 0
    assert master_trash.empty(session, 0, now) == 1
    assert again.moves
    assert master_trash.entries(session) == []
    assert tombstones.is_buried(session, f"log/{ITEM}".encode())


@pytest.mark.slow
def test_rm_says_what_the_master_lacks(sent: Node, master: Sshd) -> None:
    clean = rla(sent, "rm", OTHER, "--data-root", str(sent.root))
    assert "the master keeps its copy" in clean.stdout
    assert "lacks" not in clean.stderr
    sent.stop()
    (sent.root / "results" / ITEM / "late.bin").write_bytes(bytes(5000))
    warned = rla(sent, "rm", ITEM, "--yes", "--data-root", str(sent.root))
    assert warned.returncode == 0
    assert "the master lacks 1 of these files" in warned.stderr
    assert "Moved to trash (" in warned.stdout
    assert of_item(tree(master.root))  # without --master nothing happens there


@pytest.mark.further
@pytest.mark.slow
def test_a_name_that_ends_with_a_blank(sent: Node, master: Sshd) -> None:
    """What is removed there is what is removed here; a name with a line break is refused, not cut in two."""
    beginning = "task/2026/11/21/09-30-03-000001_10.0.0.5_&note=a"
    for item in (beginning, beginning + " ", beginning + "\nb"):
        sent.run(item, "finished")
    looked_at_everything(sent, master)
    for item in (beginning, beginning + " "):
        wait_until((master.root / "log" / item / "run.json").exists, 20, "the run on the master")
    assert _remove_on_master(sent, beginning + " ").returncode == 0
    assert not (master.root / "log" / (beginning + " ")).exists()
    assert _remove_on_master(sent, beginning + "\nb").returncode != 0
    assert (master.root / "log" / beginning / "run.json").exists()


def _remove_on_master(node: Node, item: str) -> subprocess.CompletedProcess[str]:
    return _run(node, [sys.executable, "-c", REMOVE, str(node.root), str(node.config), item])


@pytest.mark.further
@pytest.mark.slow
def test_without_the_master_nothing_is_removed_here(sent: Node, master: Sshd) -> None:
    master.stop()
    before = of_item(tree(sent.root))
    done = rla(sent, "rm", ITEM, "--master", "--yes", "--data-root", str(sent.root))
    assert done.returncode == 1
    assert "nothing was removed here either" in done.stderr
    assert of_item(tree(sent.root)) == before


@pytest.mark.slow
def test_bury_takes_one_archive_of_a_day(sent: Node) -> None:
    with closing(sqlite3.connect(sent.state / "replicate" / "ledger.db", timeout=20)) as db:
        db.execute(*burial(1, f"archive_tester/{ITEM}".encode()))
        rows: dict[Any, Any] = dict(
            db.execute(
                "SELECT f.name, f.state FROM files f JOIN folders d ON d.id = f.folder "
                "WHERE d.kind = 'archive_tester'"
            ).fetchall()
        )
    assert rows == {f"{Path(ITEM).name}.json".encode(): 4, f"{Path(OTHER).name}.json".encode(): 0}


class Counting(FolderSession):
    """Counts what is asked of the master."""

    calls = 0

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        self.calls += 1
        return super().read(path, offset, count)


def test_a_restore_does_not_read_the_tombstones_of_all_years(tmp_path: Path) -> None:
    (tmp_path / "log" / ITEM).mkdir(parents=True)
    session = Counting(str(tmp_path))
    others = [f"log/task/2026/11/20/09-30-01-{number:06}_x_&".encode() for number in range(200)]
    tombstones.leave_tombstones(session, others, {"trash": "other"})
    earlier = f"code/{ITEM}".encode()
    tombstones.leave_tombstones(session, [earlier], {"trash": "other"})
    entry = master_trash.move_to_trash(session, [ITEM], DEFAULT_LOG_TYPES, {}, 2000.0)
    session.calls = 0
    master_trash.restore(session, entry.name)
    assert session.calls < 20
    assert not tombstones.is_buried(session, f"log/{ITEM}".encode())
    assert not tombstones.is_buried(session, f"results/{ITEM}".encode())  # it had none, and was buried too
    assert tombstones.is_buried(session, earlier)  # by another removal
    assert all(tombstones.is_buried(session, subject) for subject in others)
