"""A folder or file that cannot be read, here or on the master, holds up itself and nothing else."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.ftp_server import FtpServer
from support.replication_lab import ITEM, Node, Sshd, random_bytes, same_trees
from support.waiting import wait_until

from rla_agent.replicate.hints import Announcer
from rla_agent.replicate.status import replication_status
from rla_agent.replicate.worker.read_faults import ScanError
from rla_agent.replicate.worker.scan import Scanner, ScanScope

MakeNode = Callable[..., Node]
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture
def near(tmp_path: Path, make_node: MakeNode) -> Node:
    """A node whose master is a folder."""
    return make_node(folder_master(tmp_path / "near_master"), "near")


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "near_master"


def folder_master(path: Path) -> dict[str, Any]:
    path.mkdir()
    return {"file_transfer_protocol": "folder", "remote_data_root": str(path)}


def parked(node: Node) -> dict[str, str]:
    """Path → reason and what to do."""
    found = replication_status(node.state)["parked"]
    return {entry["path"]: f"{entry['reason']} → {entry['fix']}" for entry in found}


def failing(call: str, path: Path, error: str = "EIO", when: str = "1+") -> tuple[str, ...]:
    """A command that runs the worker so that a system call on a path fails."""
    inject = f"inject={call}:error={error}:when={when}"
    return ("strace", "-f", "-qq", "-o", "/dev/null", "-P", str(path), "-e", f"trace={call}", "-e", inject)


def deep_folder(top: Path, depth: int) -> None:
    """Folders with long names inside each other, made one by one: no path leads to the last ones."""
    back = os.open(".", os.O_RDONLY)
    try:
        os.chdir(top)
        for _ in range(depth):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        Path("lost.txt").write_text("too deep")
    finally:
        os.fchdir(back)
        os.close(back)


def look_now(node: Node) -> None:
    with closing(Announcer(node.state)) as announcer:
        announcer.now(())


def test_a_folder_too_deep_for_any_path_stops_nothing(near: Node, there: Path) -> None:
    near.run()
    deep_folder(near.item("results"), 20)
    (near.item("tmp_data") / "after.bin").write_bytes(b"after")  # a kind that is looked at later
    (near.item("results") / "z.bin").write_bytes(b"beside")
    near.start()
    wait_until((there / "tmp_data" / ITEM / "after.bin").exists, 20)
    wait_until((there / "results" / ITEM / "z.bin").exists, 20)
    (path, why), *others = wait_until(lambda: parked(near), 20).items()
    assert path.startswith(f"results/{ITEM}/ddd")
    assert "too long" in why.lower()
    assert others == []
    assert "Traceback" not in near.log()
    assert near.stop() == 0


@needs_strace
def test_a_folder_that_gives_an_error_is_named_and_looked_at_again(near: Node, there: Path) -> None:
    near.run()
    bad = near.item("results") / "bad"
    bad.mkdir()
    (bad / "x.bin").write_bytes(b"x")
    (near.item("tmp_data") / "after.bin").write_bytes(b"after")
    near.start(*failing("getdents64", bad, when="1..6"))
    why = wait_until(lambda: parked(near).get(f"results/{ITEM}/bad"), 20)  # of six looks, a second apart
    wait_until((there / "tmp_data" / ITEM / "after.bin").exists, 30)
    assert "Input/output error" in why
    assert "check the disk" in why

    def all_there() -> bool:
        look_now(near)
        return same_trees(near, there)

    wait_until(all_there, 30, "the folder being looked at again")
    wait_until(lambda: parked(near) == {}, 20)


@pytest.mark.slow
@needs_strace
def test_files_of_a_folder_that_is_not_seen_are_not_gone(near: Node, there: Path) -> None:
    near.agent = {"replicate_retention": "mirror"}
    near.write_config()
    near.run()
    for step in (1, 2):
        (near.item("checkpoint") / f"c_{step}.pt").write_bytes(b"x" * step)
    near.start()
    wait_until(lambda: same_trees(near, there), 20)
    assert near.stop() == 0
    seen = near.item("checkpoint") / "c_1.pt"
    near.start(*failing("newfstatat,lstat,statx", seen))
    wait_until(lambda: parked(near).get(f"checkpoint/{ITEM}"), 20)
    assert "c_1.pt" in parked(near)[f"checkpoint/{ITEM}"]
    assert (there / "checkpoint" / ITEM / "c_1.pt").exists()


@needs_strace
@pytest.mark.parametrize("size", [1000, 3_000_000], ids=["small", "large"])
@pytest.mark.parametrize(
    "target", ["sftp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("folder", "ftp"))]
)
def test_a_file_that_cannot_be_read_to_its_end(
    target: str, size: int, tmp_path: Path, make_node: MakeNode
) -> None:
    there = tmp_path / "there"
    with remote_of(target, tmp_path, there) as remote:
        node = make_node(remote)
        node.run()
        bad = node.item("results") / "bad.bin"
        bad.write_bytes(random_bytes(size))
        for number in range(3):
            (node.item("results") / f"good{number}.bin").write_bytes(random_bytes(size, number))
        node.start(*failing("pread64", bad, when="1+" if size < 10_000 else "2+"))
        for number in range(3):
            good = there / "results" / ITEM / f"good{number}.bin"
            wait_until(good.exists, 30, f"{good} on the master")
        (node.item("tmp_data") / "late.bin").write_bytes(b"late")
        look_now(node)
        wait_until((there / "tmp_data" / ITEM / "late.bin").exists, 30, "what came later")
        assert not (there / "results" / ITEM / "bad.bin").exists()
        assert "Traceback" not in node.log()
        node.kill()


@contextmanager
def remote_of(target: str, tmp_path: Path, there: Path) -> Iterator[dict[str, Any]]:
    if target == "folder":
        yield folder_master(there)
    elif target == "ftp":
        there.mkdir()
        server = FtpServer(there)
        yield {
            "file_transfer_protocol": "ftp",
            "ftp_server": "127.0.0.1",
            "port": server.port,
            "username": "user",
            "password": "secret",
            "remote_data_root": "/",
        }
        server.close()
    else:
        sshd = Sshd(tmp_path / "sshd").start()
        there.symlink_to(sshd.root)
        yield sshd.remote()
        sshd.stop()


def test_a_shortage_of_descriptors_is_no_folders_fault(tmp_path: Path) -> None:
    folder = tmp_path / "results" / ITEM
    folder.mkdir(parents=True)
    (folder / "x.bin").write_bytes(b"x")
    scanner = Scanner(bytes(tmp_path), ScanScope(host=""))
    old = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, old[1]))
    try:
        with pytest.raises(ScanError, match="Too many open files"):
            list(scanner.everything())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)
    assert scanner.unread == {}
    assert any(b"x.bin" in found.files for found in scanner.everything())


def test_what_is_gone_again_is_no_longer_named(tmp_path: Path) -> None:
    folder = tmp_path / "results" / ITEM
    folder.mkdir(parents=True)
    deep_folder(folder, 20)
    scanner = Scanner(bytes(tmp_path), ScanScope(host=""))
    list(scanner.everything())
    (path,) = scanner.unread
    assert path.startswith(b"results/")
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    list(scanner.everything())
    assert scanner.unread == {}


def test_folders_beyond_the_depth_that_is_seen_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "results" / ITEM / "/".join("d" * 70)
    folder.mkdir(parents=True)
    scanner = Scanner(bytes(tmp_path), ScanScope(host=""))
    list(scanner.everything())
    assert [why.reason for why in scanner.unread.values()] == ["nested more than 64 folders deep"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_data_root_of_another_user(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "x").mkdir()
    root.chmod(0)
    try:
        with pytest.raises(ScanError, match="Permission denied"):
            list(Scanner(bytes(root / "x"), ScanScope(host="")).everything())
    finally:
        root.chmod(0o700)


def test_odd_names_arrive(near: Node, there: Path) -> None:
    near.run()
    results = os.fsencode(near.item("results"))
    for name in (b"\xff\xfe.bin", b"n" * 255, "\u202edr\u00e4.bin".encode(), b"-rf", b"new\nline"):
        with open(results + b"/" + name, "wb") as file:
            file.write(name)
    os.mkdir(results + b"/\xff")
    with open(results + b"/\xff/\xff", "wb") as file:
        file.write(b"inner")
    near.start()
    wait_until(lambda: same_trees(near, there), 20)
    assert "Traceback" not in near.log()


def test_paths_too_long_for_the_master_park_themselves_alone(tmp_path: Path, make_node: MakeNode) -> None:
    """Sent in one batch with others: paths longer than the master has, a folder that is a file there."""
    there = tmp_path / ("m" * 200) / ("m" * 200) / ("m" * 200)
    there.parent.mkdir(parents=True)
    node = make_node(folder_master(there))
    node.run()
    deep_folder(node.item("results"), 14)
    (there / "code" / ITEM).mkdir(parents=True)
    (there / "code" / ITEM / "taken").write_text("somebody's")
    (node.item("code") / "taken").mkdir()
    (node.item("code") / "taken" / "x.py").write_text("x = 1")
    for number in range(5):
        (node.item("code") / f"{number}.py").write_text(str(number))
        (node.item("results") / f"{number}.bin").write_text(str(number))
    node.start()
    for kind, ending in (("code", "py"), ("results", "bin")):
        for number in range(5):
            wait_until((there / kind / ITEM / f"{number}.{ending}").exists, 30, f"{number}.{ending}")
    why = wait_until(lambda: [w for p, w in parked(node).items() if p.endswith("lost.txt")], 20)
    assert "too long" in why[0]
    wait_until(lambda: f"code/{ITEM}/taken/x.py" in parked(node), 20)
    assert len(parked(node)) == 2
    assert "Traceback" not in node.log()


def test_a_temp_file_that_cannot_be_removed_parks_nothing(near: Node, there: Path) -> None:
    """A folder has the name of a temp file that is to go: the master refuses to remove it."""
    from rla_agent.replicate.file_state import Local
    from rla_agent.replicate.ledger import Ledger
    from rla_agent.replicate.ledger_rows import Key, Temp
    from rla_agent.replicate.ledger_schema import ledger_path

    temp = f"results/{ITEM}/.rla-tmp-0011"
    (there / temp).mkdir(parents=True)
    near.run()
    ledger = Ledger(ledger_path(near.state))
    number = ledger.database(os.fsencode(near.root), f"folder:{there}")
    ledger.add_temps(number, [Temp(os.fsencode(temp), Key(1, b"x"), Local(1, 1, 1, 1), 0)])
    ledger.close()
    near.start()
    wait_until((there / "log" / ITEM / "run.json").exists, 20)
    assert parked(near) == {}
