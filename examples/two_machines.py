"""Two machines on one: a node trains, a master receives its runs over ssh. Needs root, iproute2 and OpenSSH.

    sudo python examples/two_machines.py

The node is a network namespace, joined to the master by a virtual cable; they share no process and no folder.
The cable is pulled while the node trains: training does not notice, and the master catches up afterwards.
"""

from __future__ import annotations

import argparse
import getpass
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

MASTER, NODE, PORT = "10.78.0.1", "10.78.0.2", 2222
EXAMPLE = Path(__file__).resolve().with_name("ppo_cartpole.py")


def run(*words: str | os.PathLike[str], **options: Any) -> str:  # noqa: ANN401
    """Run a program to its end; what it prints."""
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


@contextmanager
def cable() -> Iterator[str]:
    """A network namespace for the node, and a pair of virtual network devices; gives the namespace's name."""
    name = f"rla{os.getpid()}"
    here, there = f"{name}m", f"{name}n"
    if f" {MASTER}/" in run("ip", "-o", "addr"):
        sys.exit(
            f"a network device has {MASTER} already: of a run of this program, perhaps one that was killed. "
            "`ip netns list` names what it left (rla…), `ip netns del NAME` removes it"
        )
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        run("ip", "addr", "add", f"{MASTER}/30", "dev", here)
        run("ip", "-n", name, "addr", "add", f"{NODE}/30", "dev", there)
        run("ip", "-n", name, "link", "set", there, "up")
        plug(name, "up")
        yield name
    finally:
        run("ip", "netns", "del", name)  # the devices go with it


def plug(cable_name: str, state: str) -> None:
    """Plug the master's end of the cable in (`up`) or out (`down`)."""
    run("ip", "link", "set", f"{cable_name}m", state)


def start_master(folder: Path) -> subprocess.Popen[bytes]:
    """An OpenSSH server for the node's key; the database will be in `folder`/data."""
    (folder / "data").mkdir(parents=True)
    for name in ("host", "node"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name)
    settings = folder / "sshd_config"
    settings.write_text(
        f"ListenAddress {MASTER}:{PORT}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/node.pub\n"
        "PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    return subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", str(settings)])


def describe_node(folder: Path, master: Path) -> dict[str, str]:
    """The node's rla_config.yaml, and the environment of its programs."""
    folder.mkdir()
    fingerprint = run("ssh-keygen", "-lf", master / "host.pub").split()[1]
    remote = {
        "ftp_server": MASTER,
        "port": PORT,
        "username": getpass.getuser(),
        "identity_file": str(master / "node"),
        "host_key": fingerprint,
        "remote_data_root": str(master / "data"),
    }
    config = {"LOG_USED": ["csv", "tensorboard"], "SEND_LOG_FILE": True, "REMOTE_SETTING": remote}
    (folder / "rla_config.yaml").write_text(yaml.safe_dump(config))
    return {**os.environ, "RLA_STATE_DIR": str(folder / "state")}


def rows(master: Path) -> int:
    """Lines of all progress.csv on the master."""
    return sum(file.read_bytes().count(b"\n") for file in master.glob("data/log/**/progress.csv"))


def play(namespace: str, node: Path, master: Path, timesteps: int) -> None:
    """Train on the node, five seconds of it without a cable; wait until the master has everything."""
    environment = describe_node(node, master)
    on_node = ["ip", "netns", "exec", namespace, sys.executable]
    agent = [*on_node, "-m", "rla_agent"]
    run(*agent, "start", "--detach", env=environment, cwd=node)
    arguments = [
        "--config",
        node / "rla_config.yaml",
        "--data-root",
        node / "data",
        "--timesteps",
        str(timesteps),
    ]
    training = subprocess.Popen([*on_node, EXAMPLE, *arguments], env=environment, stdout=subprocess.DEVNULL)
    try:
        while rows(master) < 3:  # noqa: PLR2004 - the header and two rows
            time.sleep(0.2)
        print(f"the master has {rows(master)} lines; now without a cable for 5 seconds")
        plug(namespace, "down")
        time.sleep(5)
        plug(namespace, "up")
        print(f"training {'goes on' if training.poll() is None else 'ended meanwhile'}")
        training.wait()
        while not list(master.glob("data/log/**/SHA256SUMS")):  # the last file that a finished run gets there
            time.sleep(0.2)
    finally:
        training.kill()
        run(*agent, "stop", env=environment, cwd=node)
    print(f"the master has {rows(master)} lines, and of its own:")
    print(run(sys.executable, "-m", "rla_client.cli.app", "ls", "--data-root", master / "data"))


def main() -> None:
    """Make the two machines below a folder, and play."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("two_machines"), help="must not exist yet")
    parser.add_argument("--timesteps", type=int, default=150_000)
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("making network namespaces needs root")
    folder = options.folder.absolute()
    with cable() as namespace:
        folder.mkdir()
        server = start_master(folder / "master")
        try:
            play(namespace, folder / "node", folder / "master", options.timesteps)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
