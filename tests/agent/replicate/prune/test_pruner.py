"""Freeing local disk: only what is on the master, checked there, and never without a copy."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.ports import free_port
from support.prune_lab import STEPS, fill, make_settled, prune, wait_clean
from support.replication_lab import ITEM, Node, Sshd, tree, wait_same
from support.waiting import wait_until

from rla_agent.command.transfer.verify import verify_database
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.ledger_rows import PRUNED
from rla_agent.replicate.prune.prune_plan import PruneRules
from rla_agent.replicate.prune.pruner import PruneError, Pruner, is_pruned
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.transfer.fetch_pruned import fetch_noted
from rla_client.config.schema import load_config
from rla_client.contract.item.prune_notes import pruned_below, pruned_files, read_note
from rla_client.contract.layout import PRUNED_FOLDER
from rla_client.database.fsck import find_faults

OLD = PruneRules(older_than_s=1.0)
PATIENCE_S = 300.0  # for as many rounds as are wanted; fewer are enough on a busy machine


@pytest.fixture
def sent(node: Node, master: Sshd) -> Node:
    """A node whose ended run is on the master."""
    fill(node)
    node.start()
    wait_same(node, master.root, 30)
    wait_until((master.root / "log" / ITEM / "SHA256SUMS").exists, 20)
    wait_clean(node)
    node.stop()
    make_settled(node)
    return node


@pytest.fixture
def pruner(sent: Node, master: Sshd) -> Iterator[Pruner]:
    del master
    with closing(sqlite3.connect(sent.state / "replicate" / "ledger.db")) as db:
        (target,) = db.execute("SELECT target FROM databases").fetchone()
    made = Pruner(sent.state, str(sent.root), target)
    yield made
    made.close()


@pytest.mark.slow
def test_dry_by_default_then_only_checkpoints_but_the_newest(sent: Node, master: Sshd) -> None:
    before, there = tree(sent.root), tree(master.root)
    shown = prune(sent, "--older-than", "1s")
    assert shown.returncode == 0, shown.stderr
    assert "2 file(s); nothing was done: add --apply" in shown.stdout
    assert tree(sent.root) == before
    done = prune(sent, "--older-than", "1s", "--apply", "--json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["databases"]
    gone = {f"checkpoint/{ITEM}/checkpoint_{step}.pt" for step in (10, 20)}
    assert set(result["gone"]) == gone
    assert result["freed_bytes"] == 120_000
    left = {path for path in tree(sent.root) if PRUNED_FOLDER not in path}
    assert left == before.keys() - gone
    assert tree(master.root) == there
    with closing(sqlite3.connect(sent.state / "replicate" / "ledger.db")) as db:
        assert db.execute("SELECT count(*) FROM files WHERE state = ?", (PRUNED,)).fetchone() == (2,)


@pytest.mark.slow
def test_nothing_takes_it_for_damage_or_for_a_deletion(sent: Node, master: Sshd) -> None:
    sent.agent = {"replicate_retention": "mirror"}
    sent.write_config()
    assert prune(sent, "--older-than", "1s", "--apply").returncode == 0
    with closing(sqlite3.connect(sent.state / "replicate" / "ledger.db")) as db:
        # as if the replicator had looked between note and removal, and had found the file as it was
        db.execute("UPDATE files SET state = 0 WHERE name = ?", (b"checkpoint_10.pt",))
        db.commit()
    there = tree(master.root)
    sent.start()
    (sent.item("tmp_data") / "later.txt").write_text("later")  # its arrival tells that a rescan is over
    wait_until((master.root / "tmp_data" / ITEM / "later.txt").exists, 20)
    wait_clean(sent)
    assert {path for path in tree(master.root) if "later" not in path} == there.keys()
    count, faults = verify_database(sent.state, load_config(sent.config), sent.root)
    assert (faults, count) == ([], len(there) + 1)
    assert [fault for fault in find_faults(sent.root, time.time()) if "checkpoint" in fault.where] == []
    assert pruned_below(sent.root / "checkpoint" / ITEM) == (120_000, 2)
    checked = subprocess.run(
        ["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=master.root / "log" / ITEM, check=False
    )
    assert checked.returncode == 0
    os.unlink(master.root / "checkpoint" / ITEM / "checkpoint_10.pt")
    _, faults = verify_database(sent.state, load_config(sent.config), sent.root, sizes=True)
    assert [(fault.what, Path(fault.path).name) for fault in faults] == [("missing", "checkpoint_10.pt")]


@pytest.mark.slow
def test_a_live_run_and_what_was_just_sent_stay(master: Sshd, node: Node) -> None:
    fill(node, state="running")
    node.start()
    wait_until((master.root / "checkpoint" / ITEM / "checkpoint_30.pt").exists, 20)
    wait_clean(node)
    make_settled(node)
    shown = prune(node, "--older-than", "1s").stdout
    assert "would free 0 B" in shown
    assert "kept: of a run that has not ended 4\n" in shown
    node.run(state="finished")
    wait_clean(node)
    assert "in 2 file(s)" in prune(node, "--older-than", "1s").stdout
    with closing(sqlite3.connect(node.state / "replicate" / "ledger.db", timeout=10)) as db:
        db.execute("UPDATE files SET check_at = ? WHERE acked IS NOT NULL", (time.time() + 300,))
        db.commit()
    shown = prune(node, "--older-than", "1s").stdout
    assert "would free 0 B" in shown
    assert "not yet confirmed to be on the master's disk 2" in shown


@pytest.mark.slow
def test_it_says_why_files_stay(sent: Node) -> None:
    folder = sent.root / "checkpoint" / ITEM
    (folder / "checkpoint_5.pt").write_bytes(b"s" * 2300)
    (folder / "checkpoint_6.pt").write_bytes(b"n" * 9000)  # the replicator has not seen it
    with (folder / "checkpoint_10.pt").open("ab") as changed:
        changed.write(b"more")
    (result,) = json.loads(prune(sent, "--older-than", "1s", "--json").stdout)["databases"]
    assert result["kept"] == {
        "changed since it was sent": 1,
        "newest of its run and name": 1,
        "not named NAME_STEP.pt": 1,
        "not wholly on the master yet": 1,
        "smaller than 4 KiB": 1,
    }
    assert [os.path.basename(file["path"]) for file in result["planned"]] == ["checkpoint_20.pt"]
    spared = prune(sent, "--older-than", "30d").stdout
    assert "within the limits given 1" in spared
    page = Path(__file__).parents[4] / "docs" / "how-to" / "retention.md"
    assert all(f"| {reason} |" in page.read_text() for reason in result["kept"])


@pytest.mark.slow
def test_what_is_not_there_as_it_was_sent_stays(sent: Node, master: Sshd) -> None:
    there = master.root / "checkpoint" / ITEM
    flipped = bytearray((there / "checkpoint_10.pt").read_bytes())
    flipped[999] ^= 1
    times = (there / "checkpoint_10.pt").stat()
    (there / "checkpoint_10.pt").write_bytes(flipped)
    os.utime(there / "checkpoint_10.pt", (times.st_atime, times.st_mtime))
    (there / "checkpoint_20.pt").unlink()
    done = prune(sent, "--older-than", "1s", "--apply")
    assert done.returncode == 1
    assert "not what was sent" in done.stderr
    assert "the master has lost it" in done.stderr
    here = sent.root / "checkpoint" / ITEM
    assert {path.name for path in here.glob("*.pt")} == {f"checkpoint_{step}.pt" for step in STEPS}
    assert pruned_files(here) == []


class Losing(FolderSession):
    """A master that loses each file once it was read to its end."""

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        data = super().read(path, offset, count)
        found = self.stat(path)
        if found is not None and offset + len(data) == found.size:
            self.remove(path)
        return data


@pytest.mark.slow
def test_a_master_that_loses_the_file_between_check_and_removal(
    pruner: Pruner, sent: Node, master: Sshd
) -> None:
    plan = pruner.plan(OLD, time.time())
    assert len(plan.chosen) == 2
    done = list(pruner.carry_out(plan, Losing(str(master.root))))
    assert all("the master has lost it" in entry.stays for entry in done)
    here = sent.root / "checkpoint" / ITEM
    assert {path.name for path in here.glob("*.pt")} == {f"checkpoint_{step}.pt" for step in STEPS}
    assert pruned_files(here) == []
    assert len(pruner.plan(OLD, time.time()).chosen) == 2  # the ledger's rows are as before


@pytest.mark.slow
def test_a_master_whose_root_is_the_data_root(make_node: Callable[..., Node], tmp_path: Path) -> None:
    """Shared storage (or a link): what is read "on the master" is the file here, and the only copy."""
    shared = tmp_path / "shared"
    node = make_node({"file_transfer_protocol": "folder", "remote_data_root": str(shared)})
    shared.symlink_to(node.root)
    folder = fill(node)
    names = {f"checkpoint_{step}.pt".encode() for step in STEPS}

    def taken_over() -> bool:
        if not replication_status(node.state)["targets"]:
            return False
        with closing(sqlite3.connect(node.state / "replicate" / "ledger.db", timeout=10)) as db:
            found = db.execute("SELECT name FROM files WHERE state = 0").fetchall()
        return names <= {name for (name,) in found}

    node.start()
    wait_until(taken_over, 20, what="checkpoints that are thought to be there")
    node.stop()
    make_settled(node)
    for words in ((), ("--sizes",)):
        done = prune(node, "--older-than", "1s", "--apply", *words)
        assert done.returncode == 1
        assert "one copy only" in done.stderr
        assert {path.name.encode() for path in folder.glob("*.pt")} == names
        assert pruned_files(folder) == []
        assert not (folder / PRUNED_FOLDER).exists()


@pytest.mark.slow
def test_a_ledger_that_somebody_holds(pruner: Pruner, sent: Node, master: Sshd) -> None:
    plan = pruner.plan(OLD, time.time())
    pruner._db.execute("PRAGMA busy_timeout = 50")
    with closing(sqlite3.connect(sent.state / "replicate" / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(PruneError, match="database is locked"):
            list(pruner.carry_out(plan, FolderSession(str(master.root))))
    here = sent.root / "checkpoint" / ITEM
    assert {path.name for path in here.glob("*.pt")} == {f"checkpoint_{step}.pt" for step in STEPS}
    (sent.state / "replicate" / "ledger.db").write_bytes(b"not a database at all" * 100)
    for leftover in ("ledger.db-wal", "ledger.db-shm"):
        (sent.state / "replicate" / leftover).unlink(missing_ok=True)
    done = prune(sent, "--older-than", "1s", "--apply")
    assert done.returncode == 2
    assert "error: the ledger cannot be read or written" in done.stderr


class Rewriting(FolderSession):
    """While it is read on the master, the file is written anew here."""

    here: Path

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        (self.here / os.fsdecode(path)).write_bytes(b"new")
        return super().read(path, offset, count)


@pytest.mark.slow
def test_a_file_that_changes_here_meanwhile_stays(pruner: Pruner, sent: Node, master: Sshd) -> None:
    session = Rewriting(str(master.root))
    session.here = sent.root
    done = list(pruner.carry_out(pruner.plan(OLD, time.time()), session))
    assert all("changed here" in entry.stays for entry in done)
    assert (sent.root / "checkpoint" / ITEM / "checkpoint_10.pt").read_bytes() == b"new"


CALLS = (
    "unlink,unlinkat",
    pytest.param("rename,renameat,renameat2", marks=pytest.mark.soak),
    pytest.param("fsync", marks=pytest.mark.soak),
    pytest.param("pwrite64", marks=pytest.mark.soak),  # of the ledger
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("calls", CALLS)
def test_killed_at_each_call_nothing_is_without_a_copy(sent: Node, master: Sshd, calls: str) -> None:
    """SIGKILL at the k-th call, for each k until prune comes through."""
    before = {path: sha for path, sha in tree(sent.root).items() if path.startswith("checkpoint/")}
    for number in range(1, 60):
        inject = f"inject={calls}:signal=SIGKILL:when={number}"
        prefix = ("strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e", inject)
        done = prune(sent, "--older-than", "1s", "--apply", prefix=prefix)
        copies = {**tree(master.root), **tree(sent.root)}
        assert {path: copies.get(path) for path in before} == before
        for path in before:
            here = sent.root / path
            assert here.exists() or read_note(here.parent, here.name) is not None
        if done.returncode == 0:
            break
    assert number > 1, "nothing was killed"
    assert done.returncode == 0
    _bring_back(sent, master)
    again = prune(sent, "--older-than", "1s", "--apply", "--json")
    assert len(json.loads(again.stdout)["databases"][0]["gone"]) == 2


def _bring_back(node: Node, master: Sshd) -> None:
    """Copies of what was pruned, so that there is something to prune again."""
    for path in list(node.root.rglob("*.pt.json")):
        target = path.parent.parent / path.name.removesuffix(".json")
        if not target.exists():
            shutil.copy2(master.root / target.relative_to(node.root), target)
    node.start()
    (node.item("tmp_data") / f"mark{free_port()}").write_text("x")
    wait_until(lambda: _all_clean(node), 30, "clean rows")
    node.stop()
    make_settled(node)


def _all_clean(node: Node) -> bool:
    marks = {path.name.encode() for path in node.item("tmp_data").glob("mark*")}
    with closing(sqlite3.connect(node.state / "replicate" / "ledger.db", timeout=10)) as db:
        rows = dict(db.execute("SELECT name, state FROM files").fetchall())
    return marks <= rows.keys() and set(rows.values()) == {0}


@pytest.mark.slow
def test_killed_between_note_and_removal_the_file_is_looked_after_again(sent: Node, master: Sshd) -> None:
    """Row and note say that it is on the master alone, and it is here: the next rescan sets that right."""
    assert prune(sent, "--older-than", "1s", "--apply").returncode == 0
    name = f"checkpoint/{ITEM}/checkpoint_10.pt"
    shutil.copy2(master.root / name, sent.root / name)
    with (sent.root / name).open("ab") as file:
        file.write(b"and more")
    sent.start()
    wait_until(lambda: (master.root / name).read_bytes().endswith(b"and more"), 30, "the changed file there")


@pytest.mark.further
@pytest.mark.slow
def test_retention_by_itself(sent: Node, master: Sshd) -> None:
    sent.agent = {"retention": True, "retention_max_bytes": 150_000, "retention_free_fraction": 0}
    sent.write_config()
    there = tree(master.root)
    sent.start()
    here = sent.root / "checkpoint" / ITEM
    wait_until(lambda: len(list(here.glob("*.pt"))) == 1, 30, "pruned checkpoints")
    assert [note.name for note in pruned_files(here)] == ["checkpoint_10.pt", "checkpoint_20.pt"]
    assert (here / "checkpoint_30.pt").exists()
    assert tree(master.root) == there


@pytest.mark.slow
def test_results_when_named_and_more_kept_when_asked(sent: Node) -> None:
    shown = prune(sent, "--older-than", "1s", "--kind", "checkpoint", "--kind", "results", "--keep", "2")
    assert "in 3 file(s)" in shown.stdout  # one checkpoint, two figures


def test_without_a_limit_it_asks_for_one(node: Node) -> None:
    assert "say what may be deleted" in prune(node).stderr


@pytest.mark.soak
def test_with_the_replicator_looking_all_the_time(
    sent: Node, master: Sshd, pruner: Pruner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruned and fetched back, again and again, while rescans run: nothing goes there, in mirror mode too."""
    sent.agent = {"replicate_retention": "mirror"}
    sent.write_config()
    sent.start()
    there = tree(master.root)
    announcer = Announcer(sent.state)
    done = threading.Event()

    def hurry() -> None:
        while not done.wait(0.01):
            announcer.now(())

    looking = threading.Thread(target=hurry)
    looking.start()
    session = FolderSession(str(master.root))
    here = sent.root / "checkpoint" / ITEM
    pruned, end = 0, time.monotonic() + PATIENCE_S
    try:
        while pruned < 40 and time.monotonic() < end:  # many rounds find the file in the hands of a rescan
            plan = pruner.plan(OLD, time.time())
            pruned += sum(not entry.stays for entry in pruner.carry_out(plan, session))
            for note in pruned_files(here):
                assert fetch_noted(session, str(here), note) > 0
            assert {path: sha for path, sha in tree(master.root).items() if "SHA256SUMS" not in path} == {
                path: sha for path, sha in there.items() if "SHA256SUMS" not in path
            }
    finally:
        done.set()
        looking.join()
        announcer.close()
    assert pruned
    wait_clean(sent)
    assert tree(master.root).keys() == there.keys()


def test_a_damaged_note_still_keeps_the_masters_copy(tmp_path: Path) -> None:
    root, path = os.fsencode(tmp_path), f"checkpoint/{ITEM}/checkpoint_10.pt".encode()
    note = tmp_path / "checkpoint" / ITEM / PRUNED_FOLDER / "checkpoint_10.pt.json"
    assert not is_pruned(root, path)
    note.parent.mkdir(parents=True)
    assert not is_pruned(root, path)
    note.write_bytes(b"")
    assert is_pruned(root, path)
    (note.parent.parent / "checkpoint_10.pt").write_bytes(b"back")
    assert not is_pruned(root, path)
