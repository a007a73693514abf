"""Two machines for real, as two network namespaces (needs root): a node trains PPO, the master gets it.

    sudo python tests/e2e/two_hosts.py [--cut 60] [--timesteps 150000]

A node and a master that share nothing but a cable (a veth pair). On the node run a real agent and
`examples/ppo_cartpole.py`. The master sees its rows, `rla-agent status --fleet` shows the node, the
cable is pulled for a minute in the middle, and at the end every file is on the master with the same
SHA-256. Exit code 0 when all of that came true.
"""

from __future__ import annotations

# ruff: noqa: E402, T201 - the paths come first; a script
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY)]

import yaml
from replication_lab import Sshd, tree, wait_until

MASTER, NODE = "10.77.0.1", "10.77.0.2"
EXAMPLE = REPOSITORY / "examples" / "ppo_cartpole.py"
ONLY_HERE = ("code/.objects/", ".rla")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Cable:
    """A namespace for the node, joined to this one by a veth pair."""

    def __init__(self) -> None:
        self.name = f"rla{os.getpid()}"
        self.here, self.there = f"{self.name}m", f"{self.name}n"
        ip("netns", "add", self.name)
        ip("link", "add", self.here, "type", "veth", "peer", "name", self.there, "netns", self.name)
        ip("addr", "add", f"{MASTER}/30", "dev", self.here)
        ip("link", "set", self.here, "up")
        ip("-n", self.name, "addr", "add", f"{NODE}/30", "dev", self.there)
        ip("-n", self.name, "link", "set", self.there, "up")
        ip("-n", self.name, "link", "set", "lo", "up")

    def cut(self) -> None:
        ip("link", "set", self.here, "down")

    def mend(self) -> None:
        ip("link", "set", self.here, "up")

    def remove(self) -> None:
        subprocess.run(["ip", "link", "del", self.here], check=False)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class FarNode:
    """A machine behind the cable: project, data root, agent."""

    def __init__(self, folder: Path, server: Sshd, cable: Cable) -> None:
        self.folder, self.cable = folder, cable
        folder.mkdir()
        self.root = folder / "data"
        self.root.mkdir()
        self.config = folder / "rla_config.yaml"
        shutil.copy(EXAMPLE, folder)
        content = {
            "LOG_USED": ["csv", "tensorboard", "log"],
            "SEND_LOG_FILE": True,
            "BACKUP_CONFIG": {"backup_code_dir": [EXAMPLE.name]},
            "REMOTE_SETTING": server.remote(),
        }
        self.config.write_text(yaml.safe_dump(content))
        self.environment = {
            **os.environ,
            "HOME": str(folder),
            "RLA_STATE_DIR": str(folder / "state"),
            "RLA_RUNTIME_DIR": str(folder / "run"),
            "PYTHONPATH": str(REPOSITORY),
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a Python program on the node."""
        command = ["ip", "netns", "exec", self.cable.name, sys.executable, *words]
        with (self.folder / "output.log").open("ab") as log:
            process = subprocess.Popen(command, env=self.environment, cwd=self.folder, stdout=log, stderr=log)
        self._started.append(process)
        return process

    def say(self, *words: str) -> str:
        """What `rla-agent WORDS` says on the node."""
        command = ["ip", "netns", "exec", self.cable.name, sys.executable, "-m", "rla_agent", *words]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def files(self) -> dict[str, str]:
        found = tree(self.root)
        return {path: sha for path, sha in found.items() if not path.startswith(ONLY_HERE)}

    def stop(self) -> None:
        for process in reversed(self._started):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cut", type=float, default=60.0, help="seconds without network")
    parser.add_argument("--timesteps", type=int, default=150_000, help="of the training")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root, for network namespaces")
        return 77
    base = Path(tempfile.mkdtemp(prefix="rla-two-hosts-"))
    cable = Cable()
    server = Sshd(base / "sshd", address=MASTER).start()
    node = FarNode(base / "node", server, cable)
    try:
        return play(node, server, options.cut, options.timesteps)
    finally:
        node.stop()
        server.stop()
        cable.remove()
        shutil.rmtree(base, ignore_errors=True)


def rows_there(server: Sshd) -> int:
    return sum(path.read_bytes().count(b"\n") for path in server.root.rglob("progress.csv"))


def play(node: FarNode, server: Sshd, cut_s: float, timesteps: int) -> int:
    node.start("-m", "rla_agent", "start")
    training = node.start(
        EXAMPLE.name,
        "--config",
        str(node.config),
        "--data-root",
        str(node.root),
        "--timesteps",
        str(timesteps),
    )
    wait_until(lambda: rows_there(server) >= 3, 90, "the first rows on the master")
    wait_until(lambda: "running" in node.say("status", "--fleet"), 60, "the node in the fleet")
    print(f"the master has {rows_there(server)} lines of progress.csv; it says of its fleet:")
    print(node.say("status", "--fleet"))
    node.cable.cut()
    print(f"the cable is pulled for {cut_s:.0f} s")
    time.sleep(cut_s)
    before = rows_there(server)
    print(node.say("replicate", "status"))
    node.cable.mend()
    print("the cable is back")
    if training.poll() is None:
        wait_until(lambda: rows_there(server) > before, 330, "new rows on the master")
    assert training.wait(600) == 0, (node.folder / "output.log").read_text()[-2000:]
    began = time.monotonic()
    wait_until(lambda: list(server.root.rglob("SHA256SUMS")), 330, "the sums on the master")
    wait_until(lambda: node.files() == there(server), 330, "the master's tree being equal")
    took = time.monotonic() - began
    print(f"{len(there(server))} files, {rows_there(server)} lines: equal {took:.1f} s after the end")
    return 0


def there(server: Sshd) -> dict[str, str]:
    return {path: sha for path, sha in tree(server.root).items() if not path.startswith(".rla")}


if __name__ == "__main__":
    sys.exit(main())
