"""Another user of the machine against the agent and the rows of one who has no home on a local disk.

Real processes of two uids, the real /tmp and /var/tmp. What
tests/client/contract/filesystem/test_trusted_paths.py says of paths is seen here from outside: no program of
the other runs, no row is lost.
"""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.waiting import TIME_FACTOR, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
VICTIM = 64000 + os.getpid() % 500
OTHER = VICTIM + 500
ENDED_S = 60 * TIME_FACTOR

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users"),
]

FAR_HOME = """
import os
from pathlib import Path
from rla_client.contract.filesystem import file_systems
home = os.environ.get("HOME", "")
if home.startswith("/dev/shm"):
    file_systems.NETWORK_FILE_SYSTEMS[file_systems.file_system_type(Path(home))] = "NFS"
"""
TRAINING = """
import sys
from rla_client import exp_manager, logger
exp_manager.configure("table", rla_config={"LOG_USED": ["csv"]}, data_root=sys.argv[1], code_root=sys.argv[1])
exp_manager.log_files_gen()
for step in range(10):
    logger.record_tabular("step", step)
    logger.dump_tabular()
print("flushed", logger.flush(60), flush=True)
"""
EVIL_SPOOL = """
import os, sys
from pathlib import Path
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.stream.segment_writer import SegmentWriter
spool, root, python = sys.argv[1:]
found = os.stat(root)
opening = {
    "run": "r", "epoch": 1, "opened": 1.5, "root": root, "root_device": found.st_dev,
    "root_inode": found.st_ino, "folders": {"log": ".", "results": "."}, "names": {}, "sinks": ["csv"],
    "table": "", "index": "", "primary": True, "label": "", "pid": 1, "host": "h", "user": "u",
    "python": python, "client": "0", "config": None, "offline": False,
}
os.makedirs(spool)
def frame(number, rows):
    return encode_frame(FrameKind.OPEN, pack({**opening, "segment": number, "rows": rows, "lost": 0}))
writer = SegmentWriter(Path(spool), frame)
(writer.folder / "blobs").mkdir()
(writer.folder / "blobs" / "figure-1").write_bytes(b"no figure")
fields = {"name": "drawn.png", "format": "png", "cover": True, "blob": "figure-1"}
writer.append(encode_frame(FrameKind.ROW, pack([0, 1.0, {"evil": 1}])), 1)
writer.append(encode_frame(FrameKind.JOB, pack(["figure", fields])), 0)
writer.close()
for folder, names, files in os.walk(spool):
    for name in [*names, *files]:
        os.chmod(os.path.join(folder, name), 0o777)
for folder in (spool, os.path.dirname(spool)):
    os.chmod(folder, 0o777)
"""
SWAPPING = """
import os, sys
key, evil, ready, go = sys.argv[1:]
os.chdir(os.path.dirname(key))
open(ready, "w").close()
while True:
    if os.path.exists(go) and os.path.lexists(key) and os.stat(key).st_uid != os.getuid():
        os.rename(key, key + ".away")
        os.rename(evil, key)
"""


class User:
    """One user, with a home."""

    def __init__(self, uid: int, home: Path, python: Path) -> None:
        self.uid = uid
        self.home = home
        self.python = python
        home.mkdir(parents=True)
        os.chown(home, uid, uid)
        home.chmod(0o755)
        self.environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": str(home)}
        self.children: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | os.PathLike[str]) -> subprocess.Popen[str]:
        self.children.append(
            subprocess.Popen(
                [self.python, *arguments],
                env=self.environment,
                user=self.uid,
                group=self.uid,
                extra_groups=[],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd="/",
                umask=0o022,
            )
        )
        return self.children[-1]

    def run(self, *arguments: str | os.PathLike[str]) -> str:
        said, _ = self.start(*arguments).communicate(timeout=ENDED_S)
        return said

    def agent(self, *arguments: str) -> str:
        return self.run("-m", "rla_agent", *arguments)

    def end(self) -> None:
        for child in self.children:
            child.kill()
            child.communicate()


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that everybody may enter; what the two users left elsewhere goes at the end."""
    folder = Path(tempfile.mkdtemp(prefix="rla-users-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
    for uid in (VICTIM, OTHER):
        for shared in ("/tmp", "/var/tmp", "/dev/shm"):
            for path in Path(shared).glob(f"rla*-{uid}*"):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


@pytest.fixture
def python(ground: Path) -> Path:
    """A virtual environment that every user can enter, with what this one has."""
    library = ground / "venv" / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    library.mkdir(parents=True)
    ours = [str(REPOSITORY), sysconfig.get_path("platlib"), sysconfig.get_path("purelib")]
    (library / "ours.pth").write_text("\n".join(ours))
    program = ground / "venv" / "bin" / "python"
    program.parent.mkdir()
    for real in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        program.unlink(missing_ok=True)
        program.symlink_to(real)
        (ground / "venv" / "pyvenv.cfg").write_text(f"home = {os.path.dirname(real)}\n")
        with suppress(OSError):
            command = [str(program), "-c", "import zmq, msgpack, rla_agent.daemon"]
            done = subprocess.run(command, user=OTHER, env={}, cwd="/", capture_output=True, check=False)
            if done.returncode == 0:
                return program
    pytest.skip("no interpreter here that another user can start")


@pytest.fixture
def victim(ground: Path, python: Path) -> Iterator[User]:
    user = User(VICTIM, ground / "victim", python)
    data = user.home / "data"
    data.mkdir()
    os.chown(data, VICTIM, VICTIM)
    yield user
    user.agent("stop")
    user.end()


@pytest.fixture
def other(ground: Path, python: Path) -> Iterator[User]:
    user = User(OTHER, ground / "other", python)
    yield user
    user.end()


@pytest.fixture
def canary(other: User) -> Iterator[Path]:
    """Appears when the other's program runs; for the end of a test that nothing was drawn for him."""
    canary = other.home / "canary"
    program = other.home / "python"
    other.home.chmod(0o777)
    program.write_text(f"#!/bin/sh\nid -u >> {canary}\n")
    program.chmod(0o755)
    os.chown(program, OTHER, OTHER)
    yield canary
    assert not canary.exists(), canary.read_text()


def rows_of(user: User) -> list[str]:
    (table,) = (user.home / "data").rglob("progress.csv")
    with table.open(newline="") as file:
        return [row["step"] for row in csv.DictReader(file)]


def train(user: User) -> None:
    """A training script; all its rows are in the file when it has flushed."""
    script = user.home / "train.py"
    script.write_text(TRAINING)
    said = user.run(script, user.home / "data")
    assert "flushed True" in said, said
    assert rows_of(user) == [str(step) for step in range(10)], said


@pytest.fixture
def far(victim: User, ground: Path) -> str:
    """The victim's home is on a file server (so says the table of file systems); the key of this machine."""
    if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == os.stat("/var/tmp").st_dev:
        pytest.skip("needs /dev/shm, a file system of another type")
    home = Path(tempfile.mkdtemp(prefix=f"rla-home-{VICTIM}-", dir="/dev/shm"))
    os.chown(home, VICTIM, VICTIM)
    (library,) = ground.glob("venv/lib/*/site-packages")
    (library / "far.py").write_text(FAR_HOME)
    (library / "then.pth").write_text("import far")
    victim.environment["HOME"] = str(home)
    said = victim.run("-c", "from rla_client.contract.agent.places import *; print(machine_key())")
    return said.strip()


@pytest.mark.slow
def test_a_state_folder_whose_parent_somebody_else_made(
    victim: User, other: User, canary: Path, far: str, ground: Path
) -> None:
    """He swaps the folder below for one with a spool of his own, and a figure that his program draws."""
    taken = Path(f"/var/tmp/rla-agent-{VICTIM}")
    taken.mkdir()
    os.chown(taken, OTHER, OTHER)
    taken.chmod(0o777)
    spool = other.home / "evil" / "spool"
    said = other.run("-c", EVIL_SPOOL, spool, victim.home / "data", other.home / "python")
    (blob,) = spool.glob("*/blobs/figure-1")
    os.chown(blob, VICTIM, VICTIM)  # a file of the victim's that he got hold of
    assert list(spool.iterdir()), said
    swapping = other.start("-c", SWAPPING, taken / far, spool.parent, other.home / "ready", other.home / "go")
    wait_until((other.home / "ready").exists, what="the other at work")
    started = victim.agent("start", "--detach")
    (other.home / "go").touch()
    train(victim)
    assert swapping.poll() is None, "there was nothing to swap"
    assert not list(taken.iterdir()), started
    assert not list((victim.home / "data").rglob("drawn*")), "nothing of his in the data root"
    (own,) = Path("/var/tmp").glob(f"rla-agent-{VICTIM}-*")
    assert (own.stat().st_uid, own.stat().st_mode & 0o777) == (VICTIM, 0o700)
    found = victim.agent("doctor")
    assert f"{taken} belongs to uid {OTHER}" in found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["moved", "linked"])
def test_a_stream_of_somebody_else_in_the_spool(victim: User, other: User, canary: Path, how: str) -> None:
    """Whatever brought it there, it is not taken in; log, status and doctor say so."""
    other.run("-c", EVIL_SPOOL, other.home / "evil", victim.home / "data", other.home / "python")
    (stream,) = (other.home / "evil").iterdir()
    victim.agent("start", "--detach")
    (lock,) = victim.home.rglob("agent.lock")
    spool = lock.parent / "spool"
    if how == "moved":
        shutil.copytree(stream, lock.parent / stream.name, copy_function=shutil.copy2)
        subprocess.run(["chown", "-R", f"{OTHER}:{OTHER}", lock.parent / stream.name], check=True)
        os.rename(lock.parent / stream.name, spool / stream.name)  # until now it was root's, whom we trust
    else:
        (spool / stream.name).symlink_to(stream)
    word = f"belongs to uid {OTHER}" if how == "moved" else "is a link"
    wait_until(lambda: word in (lock.parent / "agent.log").read_text(), what="a word in the log")
    train(victim)
    assert word in victim.agent("status", "--json")
    assert word in victim.agent("doctor")
    assert not list((victim.home / "data").glob("progress*")), "nothing of his in the data root"
    assert (spool / stream.name).exists(), "and nothing of it deleted"


def _foreign(path: Path) -> None:
    path.mkdir()
    os.chown(path, OTHER, OTHER)
    path.chmod(0o777)


def _link(path: Path) -> None:
    path.symlink_to("/etc")
    os.lchown(path, OTHER, OTHER)


def _file(path: Path) -> None:
    path.write_text("")
    os.chown(path, OTHER, OTHER)


@pytest.mark.slow
@pytest.mark.parametrize("make", [_foreign, _link, _file])
@pytest.mark.parametrize("deep", [0, 120], ids=["short", "too long"])
def test_somebody_else_has_our_name_in_tmp(victim: User, make: Callable[[Path], None], deep: int) -> None:
    """No XDG_RUNTIME_DIR, as under cron, Slurm and docker; with a state folder too deep for sockets, too."""
    make(Path(f"/tmp/rla-agent-{VICTIM}"))
    if deep:
        victim.environment["XDG_STATE_HOME"] = str(victim.home / ("d" * deep))
    train(victim)
    assert "serving" in victim.agent("status"), "and it answers"


def _of_root(victim: User, ground: Path) -> Path:
    (ground / "of-root").mkdir(0o755)
    return ground / "of-root"


def _of_other(victim: User, ground: Path) -> Path:
    (ground / "of-other").mkdir()
    (ground / "of-other").chmod(0o777)
    os.chown(ground / "of-other", OTHER, OTHER)
    return ground / "of-other"


def _open_to_all(victim: User, ground: Path) -> Path:
    (ground / "open").mkdir()
    (ground / "open").chmod(0o777)
    os.chown(ground / "open", VICTIM, VICTIM)
    return ground / "open"


def _gone(victim: User, ground: Path) -> Path:
    return ground / "gone"


@pytest.mark.slow
@pytest.mark.parametrize("make", [_of_root, _of_other, _open_to_all, _gone])
def test_a_runtime_folder_that_is_not_ours(
    victim: User, ground: Path, make: Callable[[User, Path], Path]
) -> None:
    """XDG_RUNTIME_DIR of somebody else, after su or sudo -E."""
    victim.environment["XDG_RUNTIME_DIR"] = str(make(victim, ground))
    train(victim)
    assert f"/tmp/rla-agent-{VICTIM}" in victim.agent("status", "--json")


def test_a_socket_of_somebody_else_gets_no_row(victim: User, other: User) -> None:
    """He listens where the agent would; a flush that he answers is none of ours."""
    asked = "from rla_client.contract.agent.places import find_places; print(find_places().runtime)"
    folder = Path(victim.run("-c", asked).strip())
    assert folder.parent == Path(f"/tmp/rla-agent-{VICTIM}")
    for part in (folder.parent, folder):
        _foreign(part)
    listens = other.start("-c", f"""
import zmq
from rla_client.contract.spool.protocol import MessageKind, decode_message, encode_message
socket = zmq.Context().socket(zmq.ROUTER)
socket.bind("ipc://{folder}/data.sock")
import os; os.chmod("{folder}/data.sock", 0o777)
print("up", flush=True)
peer, message = socket.recv_multipart()
print("got", flush=True)
""")  # fmt: skip
    assert listens.stdout is not None
    assert listens.stdout.readline() == "up\n"
    train(victim)
    assert listens.poll() is None
    listens.send_signal(signal.SIGTERM)
    assert listens.stdout.read() == ""
