"""The master's tree equals the local one, and nothing is sent twice or torn."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from support.prune_lab import wait_clean
from support.replication_lab import (
    ITEM,
    NO_EXTENSIONS,
    Node,
    Sshd,
    finished_item,
    noted,
    random_bytes,
    same_trees,
    sent_files,
    tree,
    written,
)
from support.waiting import wait_until

from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.status import replication_status
from rla_client.contract.checkpoint.dropped_note import note_dropped

MakeNode = Callable[..., Node]
LOOKS = 200  # that find half a row in turn: no write takes so long


@pytest.mark.slow
def test_all_kinds_arrive_once_and_a_restart_sends_nothing(node: Node, master: Sshd) -> None:
    size = finished_item(node)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30, "the master's tree being equal")
    wait_until(lambda: list((master.root / "log").rglob("SHA256SUMS")), 20, "the sums")
    wait_until(lambda: same_trees(node, master.root), 10)
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    assert written(node) <= 1.05 * size + 35 * 100 + 8000  # requests' heads, the sums, the status file
    before = {path: os.stat(path).st_mtime_ns for path in (master.root / "log").rglob("*")}
    assert node.stop() == 0
    node.start()
    began = time.time()
    wait_until(lambda: noted(node, began + 2), 20)
    assert sent_files(node) == 0
    assert before == {path: os.stat(path).st_mtime_ns for path in (master.root / "log").rglob("*")}
    assert not list(master.root.rglob(".rla-tmp*"))


@pytest.mark.slow
def test_no_row_stays_torn_and_none_is_sent_twice(node: Node, master: Sshd) -> None:
    log = node.run()
    path = log / "progress.csv"
    path.write_text("number,text\n")
    node.start()
    remote = master.root / path.relative_to(node.root)
    wait_until(remote.exists, 20)
    torn: list[bytes] = []  # by reads one after the other; a write that crosses a page shows in steps
    done = threading.Event()

    def read() -> None:
        while not done.is_set() and len(torn) < LOOKS:
            data = remote.read_bytes()
            if data and not data.endswith(b"\n"):
                torn.append(b"%d: " % len(data) + data[-80:])
            else:
                torn.clear()
            done.wait(0.001)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with path.open("a", buffering=1) as file:
        for number in range(10_000):
            file.write(f'{number},"{"x" * (number % 97)}"\n')
            if number % 2500 == 2499:
                wait_until(lambda: remote.stat().st_size > file.tell() // 2, 20)
    node.run(state="finished")
    wait_until(lambda: same_trees(node, master.root), 30, "the master's tree being equal")
    done.set()
    reader.join()
    assert len(torn) < LOOKS, torn[-1]
    arrived = time.time()
    wait_until(lambda: noted(node, arrived), 10)
    payload = sum(file.stat().st_size for file in log.iterdir())
    assert written(node) <= 1.05 * payload + 5000


@pytest.mark.soak  # seven seconds
def test_a_lost_ledger_sends_nothing_again(node: Node, master: Sshd) -> None:
    finished_item(node)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 30)
    wait_until(lambda: list((master.root / "log").rglob("SHA256SUMS")), 20, "the sums")
    assert node.stop() == 0
    for path in (node.state / "replicate").glob("ledger.db*"):
        path.unlink()
    before = {master.root / path: os.stat(master.root / path).st_ino for path in tree(master.root)}
    node.start()

    def all_known() -> bool:
        targets = replication_status(node.state)["targets"]
        return bool(targets) and targets[0].get("sent_files", 0) >= len(before) and not targets[0]["backlog"]

    wait_until(all_known, 30)
    assert {path: os.stat(path).st_ino for path in before} == before
    assert same_trees(node, master.root)
    assert not [path for path in tree(master.root) if ".kept-" in path]


@pytest.mark.slow
def test_an_ended_run_carries_sums_that_check(node: Node, master: Sshd) -> None:
    log = node.run()
    (log / "progress.csv").write_text("a\n1\n")
    (log / "log.txt").write_text("0123456789" * 1000 + "\n")
    (node.item("results") / "odd\nname").write_bytes(b"odd")
    (node.item("checkpoint") / "c_1.pt").write_bytes(random_bytes(300_000))
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    with (log / "progress.csv").open("a") as file:
        file.write("2\n")
    wait_until(lambda: same_trees(node, master.root), 20)
    # rewritten in place behind our back, same size, in the middle: only reading all of it shows that
    with (log / "log.txt").open("r+b") as file:
        file.seek(5000)
        file.write(b"XXXX")
        file.seek(0, os.SEEK_END)
        file.write(b"more\n")
    wait_until(lambda: (master.root / "log" / ITEM / "log.txt").stat().st_size == 10_006, 20)
    node.run(state="finished")
    there = master.root / "log" / ITEM
    wait_until((there / "SHA256SUMS").exists, 30, "the sums on the master")
    wait_until(lambda: same_trees(node, master.root), 20)
    checked = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=there, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.count(": OK") == 5


@pytest.mark.further
@pytest.mark.slow
def test_the_sums_of_an_ended_run_are_written_once(node: Node, master: Sshd) -> None:
    def end(item: str) -> Path:
        node.run(item, state="finished")
        sums = node.root / "log" / item / "SHA256SUMS"
        wait_until((master.root / "log" / item / "SHA256SUMS").exists, 20, "the sums on the master")
        return sums

    for item in (ITEM, OTHER):
        (node.run(item) / "log.txt").write_text("a line\n")
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    sums = end(ITEM)
    once = sums.stat().st_ino
    end(OTHER)  # takes as many looks at live items as the first one took
    assert sums.stat().st_ino == once


@pytest.mark.slow
def test_only_what_max_to_keep_dropped_goes_and_only_where_mirror_is_asked_for(
    master: Sshd, make_node: MakeNode
) -> None:
    nodes = {}
    for retention in ("keep", "mirror"):
        root = master.root / retention
        root.mkdir()
        nodes[retention] = make_node(
            master.remote(remote_data_root=str(root)), retention, agent={"replicate_retention": retention}
        )
    for node in nodes.values():
        node.run()
        for name in ("c_1.pt", "c_2.pt", "c_3.pt", "c_4.pt", "edited_5.pt", "mine.bin"):
            (node.item("checkpoint") / name).write_bytes(b"x" * 100)
        node.start()
    there = {retention: master.root / retention / "checkpoint" / ITEM for retention in nodes}
    for retention, node in nodes.items():
        wait_until(partial(same_trees, node, master.root / retention), 20)
        (there[retention] / "edited_5.pt").write_bytes(b"somebody's, on the master")
        here = node.item("checkpoint")
        drop(here, "c_2.pt")
        (here / "c_2.pt").write_bytes(b"saved anew")  # and then removed by the user: it stays
        wait_until(partial(holds, there[retention] / "c_2.pt", b"saved anew"), 20)
        for name in ("c_1.pt", "c_2.pt", "mine.bin"):  # by `rm`
            (here / name).unlink()
        for name in ("c_3.pt", "edited_5.pt"):
            drop(here, name)
    wait_until(lambda: not (there["mirror"] / "c_3.pt").exists(), 20, "the dropped checkpoint going")
    wait_until(lambda: ledger_states(nodes["mirror"], "edited_5.pt") == [], 20)
    assert sorted(path.name for path in there["mirror"].iterdir()) == [
        "c_1.pt", "c_2.pt", "c_4.pt", "edited_5.pt", "mine.bin",
    ]  # fmt: skip
    assert sorted(path.name for path in there["keep"].iterdir()) == [
        "c_1.pt", "c_2.pt", "c_3.pt", "c_4.pt", "edited_5.pt", "mine.bin",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_dropped_checkpoint_goes_after_the_master_is_back_unless_it_was_saved_anew(
    master: Sshd, make_node: MakeNode
) -> None:
    node = make_node(master.remote(), agent={"replicate_retention": "mirror"})
    node.run()
    here = node.item("checkpoint")
    for name in ("c_1.pt", "c_2.pt"):
        (here / name).write_bytes(b"x" * 100)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    # both acknowledged, too: what the agent does not know to be there, it does not delete there
    wait_until(lambda: ledger_states(node, "c_1.pt") + ledger_states(node, "c_2.pt") == [0, 0], 20)
    master.stop()
    for name in ("c_1.pt", "c_2.pt"):
        drop(here, name)
    with closing(Announcer(node.state)) as announcer:
        announcer.now([])
    wait_until(lambda: ledger_states(node, "c_1.pt") == [6], 20)
    node.kill()
    (here / "c_2.pt").write_bytes(b"saved anew")
    master.start()
    node.start()
    wait_until(lambda: same_trees(node, master.root), 60, "c_1.pt going, c_2.pt coming")


def holds(path: Path, content: bytes) -> bool:
    return path.read_bytes() == content


def drop(folder: Path, name: str) -> None:
    """What `max_to_keep` does."""
    note_dropped(folder, [name])
    (folder / name).unlink()


def ledger_states(node: Node, name: str) -> list[int]:
    with closing(sqlite3.connect(f"file:{node.state}/replicate/ledger.db?mode=ro", uri=True)) as db:
        return [row[0] for row in db.execute("SELECT state FROM files WHERE name = ?", (name.encode(),))]


def test_each_machine_leaves_its_status_on_the_master(node: Node, master: Sshd) -> None:
    from rla_agent.replicate import fleet
    from rla_agent.replicate.backend.folder import FolderSession

    node.run()
    node.start()
    session = FolderSession(str(master.root))
    (machine,) = wait_until(lambda: fleet.machines(session), 20, "the status file")
    assert machine["host"] == node.host
    assert machine["age_s"] < 60
    (master.root / ".rla-fleet" / "evil.json").write_text('{"host": "\\u001b[2J", "runs": [3]}')
    (master.root / ".rla-fleet" / "broken.json").write_text("{")
    text = fleet.machines_text(fleet.machines(session))
    assert node.host in text
    assert "\x1b" not in text


OTHER = ITEM.replace("000001", "000002")


@pytest.mark.slow
def test_the_same_code_of_two_items_is_one_file_on_the_master(node: Node, master: Sshd) -> None:
    data = random_bytes(300_000)
    node.run(state="finished")
    (node.item("code") / "train.py").write_bytes(b"train()")
    (node.item("code") / "model.py").write_bytes(data)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    wait_clean(node)  # what was written counts when the sender has come back
    before = time.time()
    wait_until(lambda: noted(node, before), 10)
    sent = written(node)
    node.run(OTHER, state="finished")
    (node.item("code", OTHER) / "train.py").write_bytes(b"train(faster=True)")
    (node.item("code", OTHER) / "model.py").write_bytes(data)
    (node.item("results", OTHER) / "model.py").write_bytes(data)  # results may be written in place
    look = Announcer(node.state)
    look.now([])
    look.close()
    wait_until(lambda: same_trees(node, master.root), 20)
    first, second, third = (
        os.stat(master.root / path / "model.py")
        for path in (f"code/{ITEM}", f"code/{OTHER}", f"results/{OTHER}")
    )
    assert first.st_ino == second.st_ino
    assert first.st_ino != third.st_ino
    before = time.time()
    wait_until(lambda: noted(node, before), 10)
    assert written(node) - sent < 1.5 * len(data)
    # one of them changes here: the other one stays as it was
    (node.item("code") / "model.py").write_bytes(b"changed")
    look = Announcer(node.state)
    look.now([])
    look.close()
    wait_until(lambda: same_trees(node, master.root), 20)
    assert (master.root / "code" / OTHER / "model.py").read_bytes() == data


@pytest.mark.slow
def test_a_master_without_extensions(make_node: MakeNode, tmp_path: Path) -> None:
    server = Sshd(tmp_path / "nas", sftp=NO_EXTENSIONS).start()
    try:
        node = make_node(server.remote())
        finished_item(node)
        for item in (ITEM, OTHER):
            log = node.run(item)
            (node.item("code", item) / "model.py").write_bytes(b"model")
        node.start()
        wait_until(lambda: same_trees(node, server.root), 30)
        with (log / "progress.csv").open("a") as file:
            file.write("a\n" + "1\n" * 100_000)  # a backlog
        (node.item("code") / "model.py").write_bytes(b"replaced")
        for item in (ITEM, OTHER):
            node.run(item, state="finished")
        wait_until(lambda: same_trees(node, server.root), 30)
        wait_until(lambda: len(list(server.root.rglob("SHA256SUMS"))) == 2, 20)
        assert not [path for path in server.root.rglob("*") if path.suffix in {".old", ".new"}]
    finally:
        server.stop()


@pytest.mark.slow
def test_a_log_changed_in_the_middle_and_grown_is_sent_as_it_is(node: Node, master: Sshd) -> None:
    """The user's own; the agent knows nothing of it. `verify` finds nothing, for there is nothing to find."""
    log = node.run() / "log.txt"
    log.write_text("0123456789" * 5000 + "\n")
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    with log.open("r+b") as file:
        file.seek(20_000)
        file.write(b"XXXX")
        file.seek(0, os.SEEK_END)
        file.write(b"more\n")
    wait_until(lambda: same_trees(node, master.root), 20, "the master having the new middle")
    assert not list(master.root.rglob("*.kept-*"))


@pytest.mark.slow
def test_verify_compares_the_file_here_too(node: Node, master: Sshd) -> None:
    """A ledger whose sums are those of what was sent, and that was not what is here."""
    from rla_agent.replicate.backend.folder import FolderSession
    from rla_agent.replicate.repair import repair
    from rla_agent.replicate.verify import verify_ledger

    log = node.run() / "log.txt"
    log.write_text("0123456789" * 1000 + "\n")
    (node.item("results") / "x.bin").write_bytes(random_bytes(300_000))
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    wait_clean(node)  # a file is there a moment before it is in the ledger
    assert node.stop() == 0
    with closing(sqlite3.connect(node.state / "replicate" / "ledger.db")) as db:
        session = FolderSession(str(master.root))
        assert verify_ledger(session, db, 1, sizes=False)[1] == []
        there = {path: master.root / path.relative_to(node.root) for path in (log, log.with_name("run.json"))}
        other = b"9876543210" * 1000 + b"\n"
        old = there[log].stat()
        there[log].write_bytes(other)  # as an append without a sum left it: the ledger believes in it
        os.utime(there[log], ns=(old.st_mtime_ns, old.st_mtime_ns))
        db.execute("UPDATE files SET crc = ?, sha256 = NULL WHERE name = ?", (zlib.crc32(other), b"log.txt"))
        db.commit()
        count, faults = verify_ledger(session, db, 1, sizes=False)
        assert [(fault.what, fault.path) for fault in faults] == [("source", f"log/{ITEM}/log.txt")]
        assert verify_ledger(session, db, 1, sizes=True) == (count, [])
        repair(db, faults)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20, "the file being sent anew")
    assert not list(master.root.rglob("*.kept-*"))
