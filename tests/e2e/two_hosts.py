"""Two machines for real, as two network namespaces (needs root): a node trains, the master gets it.

    sudo python tests/e2e/two_hosts.py [--cut 60]

A node and a master that share nothing but a cable (a veth pair). The node trains (`tests/e2e`'s PPO
example when it is there and the agent can be started, else a loop that writes rows), the network is
cut for a minute in the middle, and at the end every file is on the master with the same SHA-256.
"""

from __future__ import annotations

# ruff: noqa: E402, T201 - the paths come first; a script
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from replication_lab import Node, Sshd, random_bytes, same_trees, tree, wait_until

from rla_agent.replicate import register, replication_status
from rla_agent.replicate.report import as_text

MASTER, NODE = "10.77.0.1", "10.77.0.2"


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

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["ip", "netns", "exec", self.name, *command])

    def remove(self) -> None:
        subprocess.run(["ip", "link", "del", self.here], check=False)
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class FarNode(Node):
    """A node whose worker runs in the namespace."""

    cable: Cable

    def start(self) -> Node:
        self.process = self.cable.run(
            sys.executable,
            "-m",
            "rla_agent.replicate.worker",
            "--state",
            str(self.state),
            "--host",
            self.host,
        )
        return self


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cut", type=float, default=60.0, help="seconds without network")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root, for network namespaces")
        return 77
    base = Path(tempfile.mkdtemp(prefix="rla-two-hosts-"))
    cable = Cable()
    server = Sshd(base / "sshd", address=MASTER).start()
    node = FarNode(base / "node", server.remote())
    node.cable = cable
    try:
        register(node.state, node.root, node.config)
        return play(node, server, cable, options.cut)
    finally:
        node.kill()
        server.stop()
        cable.remove()
        shutil.rmtree(base, ignore_errors=True)


def play(node: FarNode, server: Sshd, cable: Cable, cut_s: float) -> int:
    log = node.run()
    node.start()
    rows = (log / "progress.csv").open("w", buffering=1)
    rows.write("time-step,return\n")
    number = 0

    def train(seconds: float) -> None:
        nonlocal number
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            number += 1
            rows.write(f"{number},{number / 7!r}\n")
            if number % 100 == 0:
                (node.item("checkpoint") / f"checkpoint_{number}.pt").write_bytes(
                    random_bytes(300_000, number)
                )
            time.sleep(0.02)

    train(5)
    wait_until(lambda: len(tree(server.root)) >= 3, 30, "the first files on the master")
    print("the master has", len(tree(server.root)), "files; the cable is pulled")
    cable.cut()
    train(cut_s)
    print(as_text(replication_status(node.state)))
    cable.mend()
    print("the cable is back")
    train(2)
    rows.close()
    node.run(state="finished")
    began = time.monotonic()
    wait_until(lambda: same_trees(node, server.root), 330, "the master's tree being equal")
    print(
        f"{len(tree(server.root))} files, {number} rows: equal {time.monotonic() - began:.1f} s after the end"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
