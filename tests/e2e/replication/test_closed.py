"""Who is let in and what is refused: host keys, logins, foreign files, hostile names, links."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.replication_lab import ITEM, Node, Sshd, noted, random_bytes, same_trees, tree
from support.waiting import wait_until

from rla_agent.replicate import command_markers, registry
from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.registry import register
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.status_text import as_text

MakeNode = Callable[..., Node]


def target(node: Node) -> dict[str, object]:
    targets = replication_status(node.state)["targets"]
    return targets[0] if targets else {}


def blocked(node: Node) -> bool:
    return target(node).get("health") == "blocked"


@pytest.mark.slow
def test_a_root_that_was_away_for_a_moment_is_found_again(master: Sshd, make_node: MakeNode) -> None:
    node = make_node(master.remote())
    node.run()
    away = master.root.rename(master.root.with_name("away"))
    node.start()
    wait_until(lambda: blocked(node), 20)
    away.rename(master.root)
    wait_until(lambda: same_trees(node, master.root), 60)


@pytest.mark.slow
def test_a_wrong_key_stops_after_three_tries(master: Sshd, make_node: MakeNode) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(master.folder / "other")], check=True
    )
    node = make_node(master.remote(identity_file=str(master.folder / "other"), password="wrong-secret"))
    node.run()
    node.start()
    wait_until(lambda: blocked(node), 60)
    stopped = time.time()
    (node.item("results") / "more.bin").write_bytes(b"more")  # new work is no reason to try again
    wait_until(lambda: noted(node, stopped + 2), 20)
    log = (master.folder / "sshd.log").read_text()
    assert log.count("Connection closed by authenticating") + log.count("Failed publickey") == 3
    assert "refused us" in str(target(node)["reason"])
    state = b"".join(path.read_bytes() for path in node.state.rglob("*") if path.is_file())
    assert b"wrong-secret" not in state
    assert "wrong-secret" not in node.log() + as_text(replication_status(node.state))


def test_links_and_odd_names(node: Node, master: Sshd, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("outside")
    folder = node.item("results")
    node.run()
    names = [
        b"\xff\xfe",
        b"new\nline",
        "\u202e".encode(),
        b"-rf",
        b"=cmd|x",
        b"..x",
        b" ",
        b"a\\b",
        b"n" * 250,
        b"s3:x",
    ]
    for number, name in enumerate(names):
        (Path(os.fsdecode(os.fsencode(folder) + b"/" + name))).write_bytes(b"%d" % number)
    (folder / "link").symlink_to(secret)
    (folder / "folder-link").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    node.start()
    there = os.fsencode(master.root / "results" / ITEM)
    wait_until(lambda: os.path.isdir(there) and sorted(os.listdir(there)) == sorted(names), 20)
    wait_until(lambda: len(tree(master.root)) == len(names) + 1, 20)
    assert "outside" not in "".join(path.read_text() for path in (master.root / "log").rglob("*.json"))


@pytest.mark.slow
def test_only_own_items_go(master: Sshd, make_node: MakeNode) -> None:
    first = make_node(master.remote(), "first", host="node-a")
    other = ITEM.replace("10.0.0.5", "10.0.0.6")
    old = ITEM.replace("10.0.0.5", "10.0.0.7")
    off = ITEM.replace("10.0.0.5", "10.0.0.8")
    first.run()
    first.run(other, host="node-b")
    (first.item("log", old) / "progress.csv").write_text("a\n1\n")  # no run.json: an old RLA item
    first.run(off)
    register(first.state, first.root, first.config, off, is_master_node=True)
    first.start()
    wait_until(lambda: len(tree(master.root)), 20)
    wait_until(lambda: not target(first)["backlog"], 20)
    assert list(tree(master.root)) == [f"log/{ITEM}/run.json"]
    registry.add(first.state, first.root, first.config)
    wait_until(lambda: len(tree(master.root)) == 3, 20)
    assert f"log/{off}/run.json" not in tree(master.root)


def test_a_foreign_file_is_kept_beside_ours(node: Node, master: Sshd) -> None:
    path = node.item("results") / "note.txt"
    path.write_text("ours")
    node.run()
    there = master.root / path.relative_to(node.root)
    there.parent.mkdir(parents=True)
    there.write_text("somebody else's")
    node.start()
    wait_until(lambda: list(there.parent.glob("note.txt.kept-*")) and there.exists(), 20)
    assert there.read_text() == "ours"
    (kept,) = there.parent.glob("note.txt.kept-*")
    assert kept.read_text() == "somebody else's"
    wait_until(lambda: replication_status(node.state).get("kept"), 10)


@pytest.mark.slow
def test_an_item_moved_on_the_master_is_not_made_again(node: Node, master: Sshd) -> None:
    log = node.run()
    (log / "progress.csv").write_text("a\n1\n")
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    (master.root / "log" / ITEM).rename(master.root / "moved")
    (log / "warn.txt").write_text("new\n")
    wait_until(lambda: replication_status(node.state)["parked_files"], 20)
    (parked,) = [
        entry for entry in replication_status(node.state)["parked"] if entry["path"].endswith("warn.txt")
    ]
    assert parked["reason"].startswith("moved on master")
    assert "retry" in parked["fix"]
    assert not (master.root / "log" / ITEM).exists()
    command_markers.ask_retry(node.state)
    wait_until((master.root / "log" / ITEM / "warn.txt").exists, 20)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_parked(node: Node, master: Sshd) -> None:
    (master.root / "results").mkdir(mode=0o500)
    (node.item("results") / "x").write_text("x")
    node.run()
    node.start()
    wait_until(lambda: replication_status(node.state)["parked_files"] == 1, 20)
    assert "permission" in replication_status(node.state)["parked"][0]["reason"]


@pytest.mark.slow
def test_pause_resume_and_announced_sizes(node: Node, master: Sshd) -> None:
    log = node.run()
    command_markers.pause(node.state)
    node.start()
    wait_until(lambda: target(node).get("backlog"), 20)
    assert tree(master.root) == {}
    assert as_text(replication_status(node.state)).startswith("replication: paused")
    command_markers.resume(node.state)
    wait_until(lambda: same_trees(node, master.root), 20)
    announcer = Announcer(node.state)
    path = log / "progress.csv"
    path.write_text("a\n1\n2\n")
    announcer.committed([(str(path), 0, 4, False)])
    there = master.root / path.relative_to(node.root)
    wait_until(there.exists, 20)
    for name in ("one", "two"):  # once they are there, the log was looked at again
        (log / name).write_bytes(b"x")
        wait_until((there.parent / name).exists, 20)
    assert there.read_text() == "a\n1\n"  # not past what is committed
    announcer.committed([(str(path), 0, 6, False)])
    wait_until(lambda: there.read_text() == "a\n1\n2\n", 20)
    widened = path.with_name("new")
    widened.write_text("a,b\n1,\n2,\n3,4\n")
    widened.replace(path)
    announcer.committed([(str(path), 1, path.stat().st_size, True)])
    wait_until(lambda: there.read_text() == path.read_text(), 20)
    announcer.close()


def test_one_worker_per_state_folder(node: Node) -> None:
    node.start()
    wait_until(lambda: replication_status(node.state)["running"], 20)
    import sys

    command = [sys.executable, "-m", "rla_agent.replicate.worker.main", "--state", str(node.state)]
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode == 3
    assert "already serves" in second.stderr


@pytest.mark.slow
def test_a_million_bytes_of_everything(tmp_path: Path) -> None:
    """The folder target, without any server."""
    master = tmp_path / "mounted"
    node = Node(tmp_path / "n", {"file_transfer_protocol": "folder", "remote_data_root": str(master)})
    register(node.state, node.root, node.config)
    node.run()
    (node.item("results") / "x").write_bytes(random_bytes(1_000_000))
    node.start()
    try:
        wait_until(lambda: target(node).get("health") == "blocked", 20)  # not mounted
        assert not master.exists()
        master.mkdir()
        command_markers.ask_retry(node.state)
        wait_until(lambda: same_trees(node, master), 20)
    finally:
        node.kill()
