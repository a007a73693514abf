"""Ways to log in, end to end: a training process, the agent that it starts, a real sshd; what stays here."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.replicated_project import Project
from support.replication_lab import Sshd, tree

from rla_client.contract.agent.places import Places

NOT_RUNNING = 3  # exit code of `rla-agent status`

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("openssl") is None,
    reason="gives sshd a shadow file of its own in a mount namespace",
)
MakeProject = Callable[..., Project]


@pytest.fixture
def secret() -> str:
    return f"geheim-{secrets.token_hex(8)}"


@pytest.fixture
def open_master(tmp_path: Path) -> Iterator[Sshd]:
    server = Sshd(tmp_path / "sshd").start()
    yield server
    server.stop()


@pytest.fixture
def password_master(tmp_path: Path, secret: str) -> Iterator[Sshd]:
    """A master that asks for root's password and takes no key."""
    server = Sshd(tmp_path / "sshd", "PubkeyAuthentication no", "LogLevel VERBOSE", password=secret).start()
    yield server
    server.stop()


@dataclass(frozen=True)
class Around:
    """What a test needs beside a project."""

    places: Places
    wait_until: Callable[..., Any]
    new_agent: Callable[..., Any]

    def target(self) -> dict[str, Any]:
        """The only target of the agent that serves here; nothing while it is still being autostarted."""
        done = self.new_agent().command("status", "--json")
        if done.returncode == NOT_RUNNING:
            return {}
        assert done.returncode == 0, done.stderr
        targets: list[dict[str, Any]] = json.loads(done.stdout)["replication"]["targets"]
        return targets[0] if targets else {}

    def arrive(self, project: Project) -> None:
        """Wait until the master has all of a project."""
        self.wait_until(
            project.same, 40, what=lambda: f"equal trees: {project.differences()}; {self.target()}"
        )

    def shown(self) -> str:
        """What the status commands print."""
        words = (("status",), ("replicate", "status"), ("status", "--json"))
        return "".join(self.new_agent().command(*word).stdout for word in words)


@pytest.fixture
def around(places: Places, wait_until: Callable[..., Any], new_agent: Callable[..., Any]) -> Around:
    return Around(places, wait_until, new_agent)


@pytest.fixture
def make_project(tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeProject]:
    """Makes projects; HOME is empty, and the agent that a training started is gone at the end."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made: list[Project] = []

    def make(master: Sshd, remote: dict[str, object] | None = None) -> Project:
        made.append(Project(tmp_path / "project", master, remote))
        return made[-1]

    yield make
    for project in made:
        project.end()
    with_agent = places.lock.exists()
    if with_agent:
        _stop_agent(places)


def _stop_agent(places: Places) -> None:
    found = [
        process
        for process in psutil.process_iter()
        if _state_of(process) == str(places.state) and "rla_agent.daemon" in " ".join(_cmdline(process))
    ]
    for process in found:
        process.terminate()
    psutil.wait_procs(found, timeout=30)


def _state_of(process: psutil.Process) -> str:
    try:
        return process.environ().get("RLA_STATE_DIR", "")
    except psutil.Error:
        return ""


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def password_remote(master: Sshd, **more: Any) -> dict[str, object]:
    remote = master.remote(**more)
    del remote["identity_file"]
    return remote


def places_with(text: str, *roots: Path) -> list[str]:
    """Files below some folders that hold a text."""
    found = []
    for root in roots:
        for place, _, names in os.walk(root):
            for path in (Path(place, name) for name in names):
                with suppress(FileNotFoundError):  # of a stream that was taken in, or a temp file, meanwhile
                    if path.is_file() and text.encode() in path.read_bytes():
                        found.append(str(path))
    return found


@pytest.mark.slow
@pytest.mark.root
@needs_root
def test_a_password_from_the_environment_reaches_an_autostarted_agent(
    make_project: MakeProject, password_master: Sshd, secret: str, around: Around
) -> None:
    remote = password_remote(password_master, password_env="RLA_TEST_MASTER_PASSWORD")
    project = make_project(password_master, remote)
    project.content["BACKUP_CONFIG"]["backup_code_dir"] = ["."]
    project.write_config()
    training = project.train(RLA_TEST_MASTER_PASSWORD=secret)
    training.tell("rows 20")
    training.end()
    around.arrive(project)
    assert around.target()["health"] == "ok"
    assert secret not in around.shown()
    folders = (around.places.state, around.places.runtime, project.root, password_master.root)
    assert places_with(secret, *folders) == []
    assert [path for path in tree(password_master.root) if path.endswith("/rla_config.yaml")]


@pytest.mark.slow
@pytest.mark.root
@needs_root
@pytest.mark.parametrize("way", ["credentials_file", "password"])
def test_a_password_from_a_file_is_seen_nowhere_else(
    way: str, make_project: MakeProject, password_master: Sshd, secret: str, around: Around
) -> None:
    file = password_master.folder.parent / "project" / "credentials"
    remote = password_remote(password_master, **{way: str(file) if way == "credentials_file" else secret})
    project = make_project(password_master, remote)
    if way == "credentials_file":
        file.write_text(f"127.0.0.1: {secret}\n")
        file.chmod(0o600)
    project.content["BACKUP_CONFIG"]["backup_code_dir"] = ["."]  # both files lie there
    project.write_config()
    training = project.train()
    training.tell("rows 20")
    training.end()
    around.arrive(project)
    assert secret not in around.shown()
    folders = (around.places.state, around.places.runtime, project.root, password_master.root)
    assert places_with(secret, *folders) == []


@pytest.mark.slow
@pytest.mark.root
@needs_root
def test_a_missing_variable_and_a_wrong_password_stop_with_words(
    make_project: MakeProject, password_master: Sshd, secret: str, around: Around
) -> None:
    remote = password_remote(password_master, password_env="RLA_TEST_MASTER_PASSWORD")
    project = make_project(password_master, remote)
    project.train().tell("rows 3")

    def blocked(word: str) -> dict[str, Any] | None:
        found = around.target()
        return found if found.get("health") == "blocked" and word in found["reason"] else None

    found = around.wait_until(lambda: blocked("RLA_TEST_MASTER_PASSWORD is not set"), 40)
    assert "rla-agent restart" in found["fix"]
    assert "RLA_TEST_MASTER_PASSWORD is not set" in around.shown().replace("\n", " ")
    wrong = f"not-{secret}"
    project.content["REMOTE_SETTING"] = password_remote(password_master, password=wrong)
    project.write_config()
    around.wait_until(lambda: blocked("refused us"), 60)
    assert (password_master.folder / "sshd.log").read_text().count("Failed password") == 3
    assert wrong not in around.shown()
    assert places_with(wrong, around.places.state, around.places.runtime, project.root) == []
    project.content["REMOTE_SETTING"] = password_remote(password_master, password=secret)
    project.write_config()  # read again by itself
    around.wait_until(lambda: tree(password_master.root), 30, what="files on the master")


@pytest.mark.further
@pytest.mark.slow
def test_an_alias_of_ssh_config(
    make_project: MakeProject, open_master: Sshd, tmp_path: Path, around: Around
) -> None:
    """Address, port, user, key and known_hosts all come from ~/.ssh/config."""
    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(mode=0o700)
    key = (open_master.folder / "host.pub").read_text().rsplit(" ", 1)[0]
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{open_master.port} {key}\n")
    (ssh / "config").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {open_master.port}\n  User {getpass.getuser()}\n"
        f"  IdentityFile {open_master.folder}/user\n"
    )
    remote = {"ftp_server": "lab", "remote_data_root": str(open_master.root)}
    project = make_project(open_master, {**remote, "file_transfer_protocol": "sftp"})
    training = project.train()
    training.tell("rows 5")
    training.end()
    around.arrive(project)


@pytest.mark.further
@pytest.mark.slow
def test_runs_that_stay_here(
    make_project: MakeProject, open_master: Sshd, tmp_path: Path, around: Around
) -> None:
    """RLA_MODE=offline and SEND_LOG_FILE: false, in the data root of a run that goes."""
    project = make_project(open_master)
    silent = tmp_path / "silent.yaml"
    silent.write_text(project.config.read_text().replace("SEND_LOG_FILE: true", "SEND_LOG_FILE: false"))
    offline = project.train(RLA_MODE="offline")
    quiet = project.train(config=silent)
    online = project.train()
    for training in (offline, quiet, online):
        training.tell("checkpoint 2")
    assert online.tell("sync wait") == "True"
    assert offline.tell("sync wait") == quiet.tell("sync wait") == "False", (
        "for what never comes nobody waits"
    )
    assert around.new_agent().command("replicate", "now").returncode == 0  # a look at everything
    for training in (offline, quiet, online):
        training.tell("rows 5")
        training.end()
    sums = project.there(online.log) / "SHA256SUMS"
    around.wait_until(sums.exists, 30, what="the sums of the one that goes")
    there = "\n".join(tree(open_master.root))
    assert online.log.name in there
    assert offline.log.name not in there
    assert quiet.log.name not in there
