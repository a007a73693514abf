"""A master and a node, for tests and benchmarks: a real sshd, a real replicator process."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.ports import free_port
from support.waiting import wait_until

SSHD = "/usr/sbin/sshd"
ITEM = "task/2026/11/21/09-30-01-000001_10.0.0.5_&lr=0.001"
HOST = "node-a"
NO_EXTENSIONS = "internal-sftp -P posix-rename,statvfs,fstatvfs,hardlink,fsync,lsetstat,limits"


class Sshd:
    """An OpenSSH server on loopback with its own keys and configuration.

    `sftp`: the SFTP server's command; `NO_EXTENSIONS`: as on a small NAS. `password`: root's, in a
    mount namespace where the server sees a shadow file of its own (needs root). A test that makes one
    is skipped where OpenSSH's server is not installed.
    """

    def __init__(
        self,
        folder: Path,
        *lines: str,
        address: str = "127.0.0.1",
        sftp: str = "internal-sftp",
        password: str = "",
    ) -> None:
        if not os.access(SSHD, os.X_OK) or shutil.which("ssh-keygen") is None:
            pytest.skip("OpenSSH's sshd is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.address = address
        self.port = free_port()
        self.root = folder / "master"
        self.root.mkdir(exist_ok=True)
        for name in ("host", "user"):
            if not (folder / name).exists():
                command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
                subprocess.run(command, check=True)
        shutil.copy(folder / "user.pub", folder / "authorized_keys")
        text = (
            f"Port {self.port}\nListenAddress {address}\nHostKey {folder}/host\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\n"
            f"PasswordAuthentication {'yes' if password else 'no'}\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin yes\nSubsystem sftp {sftp}\n"
        )
        self._shadow = _shadow(folder, password) if password else None
        (folder / "sshd_config").write_text(text + "\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Sshd:
        Path("/run/sshd").mkdir(exist_ok=True)
        command = [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        if self._shadow is not None:
            mount = f'mount --bind {self._shadow} /etc/shadow && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", mount, "sh", *command]
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(command, stderr=log, start_new_session=True)
        wait_until(self._answers, 10, "sshd answering")
        return self

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), 1) as probe:
                return probe.recv(4) == b"SSH-"
        except OSError:
            return False

    def stop(self) -> None:
        """End the server and its sessions."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)  # else a session begins while the others are ended
            for child in _children(self._process.pid):
                _kill(child)
            self._process.kill()
            self._process.wait()
            self._process = None

    def fingerprint(self) -> str:
        shown = subprocess.run(
            ["ssh-keygen", "-lf", str(self.folder / "host.pub")], check=True, capture_output=True, text=True
        )
        return shown.stdout.split()[1]

    def remote(self, port: int | None = None, **more: Any) -> dict[str, Any]:
        """REMOTE_SETTING for this server."""
        return {
            "ftp_server": self.address,
            "port": port or self.port,
            "username": getpass.getuser(),
            "remote_data_root": str(self.root),
            "file_transfer_protocol": "sftp",
            "host_key": self.fingerprint(),
            "identity_file": str(self.folder / "user"),
            **more,
        }


def _shadow(folder: Path, password: str) -> Path:
    """A shadow file in which root has this password."""
    command = ["openssl", "passwd", "-6", "-stdin"]
    made = subprocess.run(command, input=password, capture_output=True, text=True, check=True)
    path = folder / "shadow"
    path.write_text(f"root:{made.stdout.strip()}:19000:0:99999:7:::\n")
    path.chmod(0o600)
    return path


def _children(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@dataclass
class Node:
    """A machine with a data root, a state folder and a replicator process."""

    folder: Path
    remote: dict[str, object]
    agent: dict[str, object] = field(default_factory=dict)
    host: str = HOST
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.root = self.folder / "data"
        self.root.mkdir(exist_ok=True)
        self.state = self.folder / "state"
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.config = self.folder / "rla_config.yaml"
        self.write_config()

    def write_config(self) -> None:
        import yaml

        text = yaml.safe_dump(
            {
                "SEND_LOG_FILE": True,
                "REMOTE_SETTING": self.remote,
                **({"AGENT": self.agent} if self.agent else {}),
            }
        )
        self.config.write_text(text)

    def start(self, *under: str) -> Node:
        """Start the worker; `under`: a command that runs it, strace for example."""
        log = (self.folder / "worker.log").open("ab")
        environment = {**os.environ, "HOME": str(self.folder)}
        environment.pop("SSH_AUTH_SOCK", None)
        self.process = subprocess.Popen(
            [
                *under,
                sys.executable,
                "-m",
                "rla_agent.replicate.worker.main",
                "--state",
                str(self.state),
                "--host",
                self.host,
            ],
            stdout=log,
            stderr=log,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
        log.close()
        return self

    def kill(self) -> None:
        if self.process is not None:
            for child in _children(self.process.pid):
                _kill(child)
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(90)
        self.process = None
        return code

    def log(self) -> str:
        return (self.folder / "worker.log").read_text()

    def item(self, kind: str = "log", item: str = ITEM) -> Path:
        folder = self.root / kind / item
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def run(self, item: str = ITEM, state: str = "running", host: str | None = None) -> Path:
        """Open a run: its log folder with run.json."""
        folder = self.item("log", item)
        temp = folder / ".rla-tmp-run"
        temp.write_text(json.dumps({"format": 1, "host": host or self.host, "state": state, "run": item}))
        temp.replace(folder / "run.json")
        return folder


def tree(root: Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """Relative path → SHA-256 of every file below `root`."""
    found = {}
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(folder, name)
            relative = os.fsdecode(os.path.relpath(path, os.fsencode(root)))
            if (
                relative.startswith(".rla-fleet")
                or name in {b".rla-fetched", b".rla-foreign", b".rla-dropped"}
                or any(part in relative for part in skip)
            ):
                continue
            try:
                with open(path, "rb") as file:
                    found[relative] = hashlib.sha256(file.read()).hexdigest()
            except FileNotFoundError:
                continue
    return found


def items_only(found: dict[str, str]) -> dict[str, str]:
    return {path: digest for path, digest in found.items() if not path.startswith(".rla")}


def same_trees(node: Node, master: Path) -> bool:
    return items_only(tree(node.root)) == items_only(tree(master))


def wait_same(node: Node, master: Path, timeout_s: float) -> None:
    """Wait until the trees are equal; else say where they differ."""
    try:
        wait_until(lambda: same_trees(node, master), timeout_s)
    except AssertionError:
        here, there = items_only(tree(node.root)), items_only(tree(master))
        missing = sorted(here.keys() - there.keys())
        extra = sorted(there.keys() - here.keys())
        other = sorted(path for path in here.keys() & there.keys() if here[path] != there[path])
        differ = f"missing {missing}, extra {extra}, other content {other}"
        raise AssertionError(f"trees differ: {differ}") from None


def random_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def _targets(node: Node) -> list[dict[str, Any]]:
    from rla_agent.replicate.status import replication_status

    found: list[dict[str, Any]] = replication_status(node.state)["targets"]
    return found


def finished_item(node: Node, files: int = 30) -> int:
    """A run's worth of files of all sorts; their bytes."""
    for number in range(files):
        folder = node.item(("results", "code", "tmp_data")[number % 3]) / f"sub{number % 4}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.bin").write_bytes(random_bytes(number * 997, number))
    (node.item("checkpoint") / "checkpoint_100.pt").write_bytes(random_bytes(5_000_000))
    log = node.run(state="finished")
    (log / "progress.csv").write_text("a,b\n" + "".join(f"{n},{n * n}\n" for n in range(1000)))
    archive = node.root / "archive_tester" / f"{ITEM}.json"
    archive.parent.mkdir(parents=True)
    archive.write_text("{}")
    return sum(path.stat().st_size for path in node.root.rglob("*") if path.is_file())


def written(node: Node) -> int:
    return sum(target.get("written_bytes", 0) for target in _targets(node))


def sent_files(node: Node) -> int:
    return sum(target.get("sent_files", 0) for target in _targets(node))


def noted(node: Node, after: float) -> bool:
    """Whether the worker's snapshot is newer than `after`."""
    try:
        with closing(sqlite3.connect(f"file:{node.state}/replicate/ledger.db?mode=ro", uri=True)) as db:
            row = db.execute("SELECT value FROM meta WHERE name = 'live'").fetchone()
    except sqlite3.OperationalError:  # not made yet
        return False
    return row is not None and json.loads(row[0])["at"] > after
