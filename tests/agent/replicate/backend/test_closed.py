"""Who is let in and what is refused: host keys, logins, foreign files, hostile names, links."""

from __future__ import annotations

import base64
import getpass
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paramiko import HostKeys
from support.replication_lab import ITEM, Node, Sshd, noted, random_bytes, same_trees, tree
from support.waiting import wait_until

from rla_agent.replicate import settings
from rla_agent.replicate.backend.connect import (
    Login,
    host_key_problem,
    open_sftp,
    own_key,
    resolve_login,
    trust,
)
from rla_agent.replicate.backend.target import BlockedError, HostKeyError
from rla_agent.replicate.report import as_text, replication_status
from rla_agent.replicate.settings import Announcer, register
from rla_client.config.schema import Config, RemoteSetting, load_config
from rla_client.contract.errors import ConfigError

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
    settings.ask_retry(node.state)
    wait_until(lambda: same_trees(node, master.root), 20)


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


def test_without_a_file_the_line_names_everything(tmp_path: Path) -> None:
    remote = RemoteSetting(ftp_server="m", port=2222, username="bob", remote_data_root="/srv/my data")
    login = resolve_login(remote, tmp_path)
    assert login.trust_command == "rla-agent trust m --port 2222 --user bob --root '/srv/my data'"
    login = resolve_login(remote, tmp_path, tmp_path / "rla_config.yaml")
    assert login.trust_command == f"rla-agent trust m --config {tmp_path / 'rla_config.yaml'}"


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
    wait_until(lambda: "Connection refused" in str(target(node)["reason"]), 60)
    assert target(node)["health"] == "retrying"
    assert "Connection refused" in (node.state / "agent.log").read_text()
    for name in ("host", "host.pub"):
        (master.folder / f"true-{name}").rename(master.folder / name)
    master.start()
    wait_until(lambda: same_trees(node, master.root), 90)


@pytest.mark.slow
def test_a_root_that_was_away_for_a_moment_is_found_again(master: Sshd, make_node: MakeNode) -> None:
    node = make_node(master.remote())
    node.run()
    away = master.root.rename(master.root.with_name("away"))
    node.start()
    wait_until(lambda: blocked(node), 20)
    away.rename(master.root)
    wait_until(lambda: same_trees(node, master.root), 60)


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


def test_secrets_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    remote = RemoteSetting(ftp_server="master", password_env="RLA_TEST_PASSWORD")
    with pytest.raises(BlockedError, match="RLA_TEST_PASSWORD"):
        resolve_login(remote, tmp_path)
    monkeypatch.setenv("RLA_TEST_PASSWORD", "very-secret")
    login = resolve_login(remote, tmp_path)
    assert login.password == "very-secret"
    assert "very-secret" not in repr(login)
    secrets = tmp_path / "secrets"
    secrets.write_text("other: 1\nmaster: two words\n")
    secrets.chmod(0o644)
    remote = RemoteSetting(ftp_server="master", credentials_file=str(secrets))
    with pytest.raises(BlockedError, match="open to other users"):
        resolve_login(remote, tmp_path)
    secrets.chmod(0o600)
    assert resolve_login(remote, tmp_path).password == "two words"


def test_ssh_config_aliases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        "Host lab\n  HostName 10.1.2.3\n  Port 2222\n  User ada\n  IdentityFile ~/k\n  ProxyJump gate\n"
    )
    login = resolve_login(RemoteSetting(ftp_server="lab"), tmp_path)
    assert (login.address, login.port, login.user) == ("10.1.2.3", 2222, "ada")
    assert tmp_path / "k" in login.key_files
    assert login.proxy_command == "ssh -o BatchMode=yes -W 10.1.2.3:2222 gate"
    assert resolve_login(RemoteSetting(ftp_server="lab", port=22, username="bob"), tmp_path).user == "bob"


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


def test_an_ssh_config_that_includes_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    parts = tmp_path / ".ssh" / "conf.d"
    parts.mkdir(parents=True)
    (parts / "1").write_text("User ada\nHost other\n  Port 1\n")
    (parts / "2").write_text("Host lab\n  HostName 10.1.2.3\n")
    (tmp_path / "far").write_text(f"Include {tmp_path}/far\nPort 2222\n")  # itself, too
    (tmp_path / ".ssh" / "config").write_text('include conf.d/*\nHost lab\n  Include "~/far" none\n')
    login = resolve_login(RemoteSetting(ftp_server="lab"), tmp_path)
    assert (login.address, login.port, login.user) == ("10.1.2.3", 2222, "ada")
    assert resolve_login(RemoteSetting(ftp_server="else"), tmp_path).port == 22
    (tmp_path / ".ssh" / "config").write_text('Include "conf.d\n')
    with pytest.raises(ConfigError, match="quot"):
        resolve_login(RemoteSetting(ftp_server="lab"), tmp_path)


def test_a_user_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # as in a container that does not know the uid
    remote = RemoteSetting(ftp_server="lab", identity_file="~/k", remote_data_root="data")
    assert settings.target(Config(remote_setting=remote), tmp_path).name == f"sftp://{os.getuid()}@lab/data"
    with pytest.raises(BlockedError) as caught:
        resolve_login(remote, tmp_path)
    assert "REMOTE_SETTING.username" in caught.value.hint
    named = replace(remote, username="ada")
    assert Path("~/k") in resolve_login(named, tmp_path).key_files
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host lab\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BlockedError) as caught:
        resolve_login(named, tmp_path)
    assert "LOGNAME" in caught.value.hint
    monkeypatch.setenv("LOGNAME", "ada")
    assert resolve_login(remote, tmp_path).user == "ada"


@pytest.mark.parametrize(
    ("config", "users"),
    [
        ("Include {}/*", {"lab": "", "gate": "gina", "box": "bob"}),
        ("Host lab\n  Include {}/*\n  User ada", {"lab": "ada", "gate": "", "box": ""}),
        ("Host box gate\nInclude {}/1\nHost *\nUser ada", {"lab": "ada", "gate": "gina", "box": "ada"}),
        ("Match originalhost box\nInclude {}/*", {"lab": "", "gate": "", "box": "bob"}),
        ("Host lab\nUser ada\nMatch user ada\nInclude {}/3\nUser eve", {"lab": "ada", "gate": "", "box": ""}),
        ("Host gate\nInclude {}/4\n", {"lab": "", "gate": "", "box": ""}),
    ],
)
def test_included_files_mean_the_hosts_that_ssh_takes_them_to_mean(
    config: str, users: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    parts = tmp_path / "conf.d"
    (parts / "a-folder").mkdir(parents=True)
    (parts / "1").write_text("Port 1\nHost gate\n  User gina\n")
    (parts / "2").write_text("Port 2\nHost box\n  User bob\n")
    (parts / "3").write_text("Port 3\n")
    (parts / "4").write_text(f"Host lab\n  Include {parts}/2\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(config.format(parts))
    for host, user in users.items():
        login = resolve_login(RemoteSetting(ftp_server=host), tmp_path)
        command = ["ssh", "-G", "-F", str(tmp_path / ".ssh" / "config"), host]
        ssh = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        assert login.user == (user or getpass.getuser())
        assert f"user {login.user}" in ssh
        assert f"port {login.port}" in ssh


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
    settings.ask_retry(node.state)  # as the command does
    wait_until(lambda: same_trees(node, root), 20)


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


def test_a_folder_swapped_for_a_link_leads_nowhere(node: Node, tmp_path: Path) -> None:
    from rla_agent.replicate.worker.source import open_beneath

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("secret")
    folder = node.item("results") / "sub"
    folder.symlink_to(outside)
    root = os.open(node.root, os.O_RDONLY)
    try:
        for path in (f"results/{ITEM}/sub/f", "../outside/f", "/etc/passwd"):
            with pytest.raises(OSError, match=r"Errno"):
                open_beneath(root, path.encode())
    finally:
        os.close(root)


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
    settings.add(first.state, first.root, first.config)
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
    settings.ask_retry(node.state)
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
    settings.pause(node.state)
    node.start()
    wait_until(lambda: target(node).get("backlog"), 20)
    assert tree(master.root) == {}
    assert as_text(replication_status(node.state)).startswith("replication: paused")
    settings.resume(node.state)
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


def test_a_dead_worker_is_started_again(tmp_path: Path) -> None:
    from rla_agent.replicate.agent_side import ReplicatorProcess

    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    process = ReplicatorProcess(state)
    process.start(time.monotonic())
    first: int = wait_until(lambda: process.pid, 10)
    wait_until(lambda: replication_status(state)["running"], 20)
    os.kill(first, 9)

    def again() -> bool:
        process.poll(time.monotonic())
        return process.pid not in {None, first}

    wait_until(again, 20)
    wait_until(lambda: replication_status(state)["running"], 20)
    process.stop()
    assert process.pid is None


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
        settings.ask_retry(node.state)
        wait_until(lambda: same_trees(node, master), 20)
    finally:
        node.kill()
