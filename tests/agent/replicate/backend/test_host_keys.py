"""Host keys: which are taken, which are refused with the words to fix it."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paramiko import HostKeys
from support.replication_lab import Node, Sshd, same_trees, tree
from support.waiting import wait_until

from rla_agent.replicate import command_markers
from rla_agent.replicate.backend.errors import BlockedError, HostKeyError
from rla_agent.replicate.backend.host_keys import host_key_problem
from rla_agent.replicate.backend.ssh_connection import open_sftp
from rla_agent.replicate.backend.ssh_login import Login, resolve_login
from rla_agent.replicate.backend.trust import trust
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.status_text import as_text
from rla_client.config.schema import RemoteSetting

MakeNode = Callable[..., Node]


def target(node: Node) -> dict[str, object]:
    targets = replication_status(node.state)["targets"]
    return targets[0] if targets else {}


def blocked(node: Node) -> bool:
    return target(node).get("health") == "blocked"


def nothing_pinned(master: Sshd, **more: Any) -> dict[str, object]:
    return master.remote(host_key="", known_hosts=str(master.folder / "known_hosts"), **more)


@pytest.mark.slow
def test_an_unknown_host_key_is_refused_with_the_words_to_fix_it(master: Sshd, make_node: MakeNode) -> None:
    node = make_node(nothing_pinned(master))
    node.run()
    node.start()
    wait_until(lambda: blocked(node), 20)
    assert master.fingerprint() in str(target(node)["reason"])
    assert str(target(node)["fix"]).endswith(f"rla-agent trust 127.0.0.1 --config {node.config}")
    assert "rla-agent trust" in as_text(replication_status(node.state))
    assert tree(master.root) == {}
    # once it is known, `retry` goes on
    key = (master.folder / "host.pub").read_text().rsplit(" ", 1)[0]
    (master.folder / "known_hosts").write_text(f"[127.0.0.1]:{master.port} {key}\n")
    command_markers.ask_retry(node.state)
    wait_until(lambda: same_trees(node, master.root), 20)


@pytest.mark.slow
def test_a_changed_host_key_is_refused(master: Sshd, make_node: MakeNode) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(master.folder / "other")], check=True
    )
    key = (master.folder / "other.pub").read_text().rsplit(" ", 1)[0]
    (master.folder / "known_hosts").write_text(f"[127.0.0.1]:{master.port} {key}\n")
    node = make_node(nothing_pinned(master))
    node.run()
    node.start()
    wait_until(lambda: blocked(node), 20)
    assert "has changed" in str(target(node)["reason"])
    assert "rla-agent replicate retry" in as_text(replication_status(node.state))
    assert tree(master.root) == {}
    # what it advises is done, word for word
    forget, _, trusting = str(target(node)["fix"]).partition("reinstalled: ")[2].rpartition(", then ")
    assert forget == f"ssh-keygen -R '[127.0.0.1]:{master.port}' -f {master.folder / 'known_hosts'}"
    python = f"{sys.executable} -m rla_agent"
    for command in (forget, trusting.replace("rla-agent", python, 1) + " --yes"):
        subprocess.run(
            command,
            shell=True,
            check=True,
            capture_output=True,
            env={**os.environ, "RLA_STATE_DIR": str(node.state), "HOME": str(node.folder)},
        )
    assert not (node.state / "replicate" / "known_hosts").exists()
    wait_until(lambda: same_trees(node, master.root), 20)


def test_the_advice_for_a_changed_key_names_each_file_and_line(tmp_path: Path) -> None:
    files = tmp_path / "a file", tmp_path / "pinned"
    other = "ssh-ed25519 " + base64.b64encode(ED25519[:-1] + b"x").decode()
    files[0].write_text(f"# one\n[10.1.2.3]:2222 {other}\n[10.1.*]:2222 {other}\nelsewhere {other}\n")
    files[1].write_text(f"{HostKeys.hash_host('[10.1.2.3]:2222')} {other}\n")
    login = Login("10.1.2.3", "10.1.2.3", 2222, "ada", known_hosts=files, trust="rla-agent trust m")
    problem = host_key_problem(login, "ssh-ed25519", ED25519)
    assert problem is not None
    steps = problem.hint.partition("reinstalled: ")[2].split(", ")
    assert steps == [
        f"ssh-keygen -R '[10.1.2.3]:2222' -f '{files[0]}'",
        f"delete line 3 of '{files[0]}'",
        f"ssh-keygen -R '[10.1.2.3]:2222' -f {files[1]}",
        "then rla-agent trust m",
    ]
    subprocess.run(steps[2], shell=True, check=True, capture_output=True)
    subprocess.run(["sed", "-i", "3d", str(files[0])], check=True)
    subprocess.run(steps[0], shell=True, check=True, capture_output=True)
    problem = host_key_problem(login, "ssh-ed25519", ED25519)
    assert problem is not None
    assert "is not known" in problem.why


@pytest.mark.slow
def test_a_moment_of_a_foreign_key_passes_by_itself_and_hides_no_later_fault(
    master: Sshd, make_node: MakeNode
) -> None:
    key = (master.folder / "host.pub").read_text().rsplit(" ", 1)[0]
    (master.folder / "known_hosts").write_text(f"[127.0.0.1]:{master.port} {key}\n")
    for name in ("host", "host.pub"):
        (master.folder / name).rename(master.folder / f"true-{name}")
    master.stop()
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(master.folder / "host")]
    subprocess.run(command, check=True)
    master.start()
    node = make_node(nothing_pinned(master))
    node.run()
    node.start()
    wait_until(lambda: blocked(node) and int(str(target(node)["tries"])) >= 2, 30)
    assert "has changed" in str(target(node)["reason"])
    assert tree(master.root) == {}
    assert "Accepted publickey" not in (master.folder / "sshd.log").read_text()
    master.stop()
    wait_until(lambda: f":{master.port}: Connection refused" in str(target(node)["reason"]), 60)
    assert target(node)["health"] == "retrying"
    assert "is held up: connect: " in (node.state / "agent.log").read_text()  # refused, reset, or cut off
    for name in ("host", "host.pub"):
        (master.folder / f"true-{name}").rename(master.folder / name)
    master.start()
    wait_until(lambda: same_trees(node, master.root), 90)


def test_a_key_is_pinned_where_the_settings_say(master: Sshd, tmp_path: Path) -> None:
    private, folder = tmp_path / "private", tmp_path / "keys"
    private.mkdir()
    folder.mkdir()
    named, link = folder / "hosts", tmp_path / "link"
    link.symlink_to(named)
    line = "elsewhere ssh-ed25519 AAAA"
    for content in (None, line):  # made, and added to: a last line without its end stays one
        if content is not None:
            named.write_text(content)
            named.chmod(0o644)
        remote = RemoteSetting(**master.remote(host_key="", known_hosts=str(link)))
        login = resolve_login(remote, private)
        done = trust(login, str(master.root), private, lambda _: True)
        assert f"pinned in {named}" in done.say
        assert link.is_symlink()
        assert named.read_text().splitlines()[:-1] == ([] if content is None else [line])
        assert named.stat().st_mode & 0o777 == (0o600 if content is None else 0o644)
        assert list(private.iterdir()) == []
        open_sftp(login, str(master.root)).close()
    elsewhere = resolve_login(replace(remote, known_hosts="/dev/null"), private)
    assert f"pinned in {private / 'known_hosts'}" in trust(elsewhere, "", private, lambda _: True).say
    assert not Path("/dev/null").is_file()
    nowhere = resolve_login(replace(remote, known_hosts=str(named / "below")), tmp_path / "other")
    with pytest.raises(BlockedError, match="cannot be written"):
        trust(nowhere, "", tmp_path / "other", lambda _: True)


def test_a_wrong_pinned_fingerprint_is_refused(master: Sshd) -> None:
    login = Login("127.0.0.1", "127.0.0.1", master.port, "root", host_key="SHA256:" + "A" * 43)
    with pytest.raises(HostKeyError, match="is pinned"):
        open_sftp(login, str(master.root))


ED25519 = b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32)


OUR_KEY = f"ssh-ed25519 {base64.b64encode(ED25519).decode()}"


HASHED = f"{HostKeys.hash_host('[10.1.2.3]:2222')} {OUR_KEY}"


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (f"@cert-authority * {OUR_KEY}\n[10.1.2.3]:2222 {OUR_KEY}", ""),
        (f"[10.1.2.3]:2222 ssh-ed25519 x\nnonsense\n\n# [10.1.2.3]:2222\n[10.1.2.3]:2222\t {OUR_KEY} me", ""),
        (HASHED, ""),
        (f"[10.1.*]:222? {OUR_KEY}", ""),
        (f"|1|no|salt {OUR_KEY}\n|1|x {OUR_KEY}", "is not known"),
        (f"|1|F1E1KeoE|EELq {OUR_KEY}\n|1| {OUR_KEY}\n{HASHED}", ""),
        (f"@cert-authority * {OUR_KEY}", "is not known"),
        (f"*,![10.1.2.3]:2222 {OUR_KEY}", "is not known"),
        (f"@revoked * {OUR_KEY}\n{HASHED}", "is marked @revoked"),
        (f"{HASHED}\n@revoked {HASHED}", "is marked @revoked"),
        (f"@revoked elsewhere {OUR_KEY}\n{HASHED}", ""),
    ],
)
def test_what_lines_of_known_hosts_say(lines: str, refused: str, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text(lines)
    login = Login("10.1.2.3", "10.1.2.3", 2222, "ada", known_hosts=(tmp_path / "known_hosts",))
    problem = host_key_problem(login, "ssh-ed25519", ED25519)
    assert (refused in problem.why) if problem and refused else (problem is None and not refused)
