"""Two machines for real, as two network namespaces (needs root): a node trains PPO, the master gets it.

    sudo python tests/e2e/two_hosts.py [--cut 60] [--timesteps 800000]

A node and a master that share nothing but a cable (a veth pair). On the node run a real agent and
`examples/ppo_cartpole.py`. The master sees its rows, `rla-agent status --fleet` shows the node, the
cable is pulled for a minute in the middle while the training goes on as before, and at the end every
file is on the master with the same SHA-256. Exit code 0 when all of that came true.
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
from support.replication_lab import Sshd, tree
from support.waiting import wait_until

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

    def fix(self) -> None:
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
    parser.add_argument("--timesteps", type=int, default=800_000, help="of the training; it must last")
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


def rows_below(root: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in root.rglob("progress.csv"))


def pull_the_cable(node: FarNode, training: subprocess.Popen[bytes], cut_s: float) -> None:
    """No network for `cut_s` seconds; meanwhile the training goes on writing its rows."""
    pace = Pace(node.root)
    before, _ = pace.watch(cut_s / 2)
    node.cable.cut()
    print(f"the cable is pulled for {cut_s:.0f} s")
    during, longest_s = pace.watch(cut_s)
    assert training.poll() is None, "the training ended during the cut: give more --timesteps"
    print(
        f"meanwhile the training wrote {during:.2f} rows/s, at most {longest_s:.1f} s apart "
        f"(before the cut {before:.2f} rows/s)"
    )
    assert during >= before / 2, "the cut held up the training"
    print(node.say("replicate", "status"))


class Pace:
    """How a training gets on, by the rows that it has written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rows = rows_below(root)

    def watch(self, seconds: float) -> tuple[float, float]:
        """Look at it for so long; rows per second, and the longest time without a new row."""
        first, longest_s = self.rows, 0.0
        began = last = time.monotonic()
        while (now := time.monotonic()) - began < seconds:
            rows = rows_below(self.root)
            if rows > self.rows:
                self.rows, last = rows, now
            longest_s = max(longest_s, now - last)
            time.sleep(0.1)
        return (self.rows - first) / seconds, longest_s


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
    wait_until(lambda: rows_below(server.root) >= 3, 90, "the first rows on the master")
    wait_until(lambda: "running" in node.say("status", "--fleet"), 60, "the node in the fleet")
    print(f"the master has {rows_below(server.root)} lines of progress.csv; it says of its fleet:")
    print(node.say("status", "--fleet"))
    pull_the_cable(node, training, cut_s)
    before, back = rows_below(server.root), time.monotonic()
    node.cable.fix()
    print("the cable is back")
    wait_until(lambda: rows_below(server.root) > before, 330, "new rows on the master")
    print(f"new rows on the master {time.monotonic() - back:.1f} s later")
    assert training.wait(1500) == 0, (node.folder / "output.log").read_text()[-2000:]
    began = time.monotonic()
    wait_until(lambda: list(server.root.rglob("SHA256SUMS")), 330, "the sums on the master")
    wait_until(lambda: node.files() == there(server), 330, "the master's tree being equal")
    took = time.monotonic() - began
    lines = rows_below(server.root)
    print(f"{len(there(server))} files, {lines} lines: equal {took:.1f} s after the end")
    return 0


def there(server: Sshd) -> dict[str, str]:
    return {path: sha for path, sha in tree(server.root).items() if not path.startswith(".rla")}


if __name__ == "__main__":
    sys.exit(main())
