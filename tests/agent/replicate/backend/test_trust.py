"""`rla-agent trust`: nothing is taken that was not accepted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.replication_lab import Node, Sshd, same_trees, tree
from support.waiting import wait_until

from rla_agent.replicate import command_markers
from rla_agent.replicate.backend.ssh_login import Login, resolve_login
from rla_agent.replicate.backend.trust import own_key, trust
from rla_agent.replicate.status import replication_status
from rla_client.config.schema import load_config

MakeNode = Callable[..., Node]


def target(node: Node) -> dict[str, object]:
    targets = replication_status(node.state)["targets"]
    return targets[0] if targets else {}


def blocked(node: Node) -> bool:
    return target(node).get("health") == "blocked"


def nothing_pinned(master: Sshd, **more: Any) -> dict[str, object]:
    return master.remote(host_key="", known_hosts=str(master.folder / "known_hosts"), **more)


@pytest.mark.slow
def test_trust_wakes_the_replicator(master: Sshd, make_node: MakeNode) -> None:
    node = make_node(nothing_pinned(master, remote_data_root=str(master.root / "not-there")))
    (master.folder / "authorized_keys").write_text("")
    node.run()
    node.start()
    wait_until(lambda: "is not known" in str(target(node).get("reason")), 20)
    command = str(target(node)["fix"]).rpartition("run: ")[2].split()
    done = subprocess.run(
        [sys.executable, "-m", "rla_agent", *command[1:], "--yes"],
        env={**os.environ, "RLA_STATE_DIR": str(node.state), "HOME": str(node.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done  # pinned, but no key of ours is let in
    assert "pinned in" in done.stdout
    wait_until(lambda: "is not known" not in str(target(node).get("reason")), 10)


def test_trust_pins_only_what_was_accepted(master: Sshd, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.mkdir()
    login = Login(
        "127.0.0.1",
        "127.0.0.1",
        master.port,
        "root",
        known_hosts=(private / "known_hosts",),
        key_files=(private / "id_ed25519",),
    )
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    refused = trust(login, str(master.root), private, refuse)
    assert not refused.ready
    assert master.fingerprint() in asked[0]
    assert not (private / "known_hosts").exists()
    waiting = trust(login, str(master.root), private, lambda _: True)
    line = next(text for text in waiting.say if text.startswith("restrict ssh-ed25519 "))
    assert not waiting.ready
    assert line == own_key(private)
    with (master.folder / "authorized_keys").open("a") as file:
        file.write(line + "\n")
    ready = trust(login, str(master.root), private, lambda _: pytest.fail("asked again"))
    assert ready.ready
    assert any("written, renamed and deleted" in text for text in ready.say)
    assert tree(master.root) == {}
    assert (private / "id_ed25519").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_only_trust_makes_the_remote_root(master: Sshd, make_node: MakeNode) -> None:
    root = master.root / "mistyped"
    node = make_node(master.remote(remote_data_root=str(root)))
    node.run()
    node.start()
    wait_until(lambda: blocked(node), 20)
    assert f"remote root {root} does not exist" in str(target(node)["reason"])
    assert "rla-agent trust 127.0.0.1" in str(target(node)["fix"])
    login = resolve_login(load_config(node.config).remote_setting, node.state / "replicate")
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    refused = trust(login, str(root), node.state / "replicate", refuse)
    assert not refused.ready
    assert str(root) in asked[0]
    assert not root.exists()
    made = trust(login, str(root), node.state / "replicate", lambda _: True)
    assert made.ready
    command_markers.ask_retry(node.state)  # as the command does
    wait_until(lambda: same_trees(node, root), 20)
