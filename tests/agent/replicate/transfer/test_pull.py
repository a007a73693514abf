from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path

import pytest
from support.replication_lab import ITEM, Node, Sshd, items_only, random_bytes, same_trees, tree
from support.waiting import wait_until

from rla_agent.replicate.backend.errors import DeniedError, TransientError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.backend.remote_stat import RemoteStat
from rla_agent.replicate.checksums import parse_sums
from rla_agent.replicate.registry import register
from rla_agent.replicate.transfer import fetch_file, remote_items
from rla_agent.replicate.transfer.fetch_file import fetch
from rla_agent.replicate.transfer.pull import pull
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_agent.replicate.transfer.tally import Tally
from rla_client.checkpoint.pickle_trust import pickle_problem
from rla_client.contract.errors import UnsafeNameError

OTHER = "other/2026/11/22/09-30-01-000002_10.0.0.5_&lr=0.01"


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    root = tmp_path / "master"
    for kind, item, name, size in (
        ("log", ITEM, "progress.csv", 1000),
        ("checkpoint", ITEM, "c_1.pt", 9_000_000),
        ("log", OTHER, "progress.csv", 10),
        ("results", OTHER, "a/b.png", 20),
    ):
        path = root / kind / item / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random_bytes(size, size))
    return root


def test_pull_takes_what_is_selected_and_only_once(remote: Path, tmp_path: Path) -> None:
    session = FolderSession(str(remote))
    local = tmp_path / "local"
    assert pull(session, str(local), ItemSelection(kinds=("log",), table="task")).files == 1
    assert list(tree(local)) == [f"log/{ITEM}/progress.csv"]
    assert pull(session, str(local), ItemSelection(since="2026/11/22")).files == 2
    assert pull(session, str(local), ItemSelection(until="2026/11/21")).files == 1
    again = pull(session, str(local), ItemSelection())
    assert (again.files, again.same, again.failed) == (0, 4, [])
    assert tree(local) == tree(remote)


def test_pull_goes_on_where_it_stopped(remote: Path, tmp_path: Path) -> None:
    path = f"checkpoint/{ITEM}/c_1.pt".encode()
    local = tmp_path / "local"

    class Cut(FolderSession):
        read_bytes = 0
        limit = 5_000_000

        def read(self, path: bytes, offset: int, count: int) -> bytes:
            if self.read_bytes > self.limit:
                raise TransientError("read", path, "cut")
            data = super().read(path, offset, count)
            self.read_bytes += len(data)
            return data

    session = Cut(str(remote))
    state = session.stat(path)
    assert state is not None
    with pytest.raises(TransientError):
        fetch(session, str(local), path, state)
    assert [name for name in tree(local) if not name.rpartition("/")[2].startswith(".rla-tmp")] == []
    first, session.limit = session.read_bytes, 10**9
    assert fetch(session, str(local), path, state)
    assert session.read_bytes == state.size
    assert 0 < first < state.size
    assert tree(local) == {path.decode(): tree(remote)[path.decode()]}


def test_the_master_is_not_trusted(tmp_path: Path) -> None:
    local, outside = tmp_path / "local", tmp_path / "outside"
    outside.mkdir()
    session = FolderSession(str(outside))
    for name in (b"../x", b"/etc/x", b"log/../../x", b"a//b", b"log/\n"):
        with pytest.raises(UnsafeNameError):
            fetch(session, str(local), name, RemoteStat(1, 1))
    (local / "log").mkdir(parents=True)
    (local / "log" / "task").symlink_to(outside)
    with pytest.raises(OSError, match=r"Errno"):
        fetch(session, str(local), f"log/{ITEM}/x".encode(), RemoteStat(1, 1))
    assert list(outside.iterdir()) == []

    class Liar(FolderSession):
        def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
            del path
            return [
                (b"..", RemoteStat(0, 0, "folder")),
                (b"x\x1b[2J", RemoteStat(0, 0)),
                (b"a/b", RemoteStat(0, 0)),
            ]

    tally = Tally()
    assert list(remote_items.remote_files(Liar(str(outside)), ItemSelection(kinds=("log",)), tally)) == []
    assert len(tally.failed) == 3


def test_a_file_of_another_size_than_announced_is_not_kept(remote: Path, tmp_path: Path) -> None:
    path = f"checkpoint/{ITEM}/c_1.pt".encode()
    session = FolderSession(str(remote))
    state = session.stat(path)
    assert state is not None
    for size in (state.size - 1, state.size + 1):
        with pytest.raises(TransientError):
            fetch(session, str(tmp_path / "local"), path, RemoteStat(size, state.mtime_s))
    assert not [name for name in tree(tmp_path / "local") if "tmp-pull" not in name]


def test_a_log_that_grows_there_is_continued_here(remote: Path, tmp_path: Path) -> None:
    there = remote / "log" / ITEM / "progress.csv"
    there.write_bytes(b"a,b\n" + b"1,2\n" * 3000)
    session = FolderSession(str(remote))
    root = tmp_path / "local"
    local = root / there.relative_to(remote)
    logs = ItemSelection(kinds=("log",), table="task")
    assert pull(session, str(root), logs).files == 1
    with local.open("rb") as reader:  # as TensorBoard has it open
        reader.read()
        with there.open("ab") as file:
            file.write(b"3,4\n")
        assert pull(session, str(root), logs).files == 1
        assert reader.read() == b"3,4\n"
    assert pull(session, str(root), logs).files == 0
    for content in (b"a,b\n" + b"9,9\n" * 4000, b"short\n"):  # rewritten there: fetched whole
        there.write_bytes(content)
        assert pull(session, str(root), logs).files == 1
        assert local.read_bytes() == content
    local.unlink()
    (tmp_path / "secret").write_bytes(b"short\n")
    local.symlink_to(tmp_path / "secret")
    with there.open("ab") as file:
        file.write(b"more\n")
    assert pull(session, str(root), logs).files == 1
    assert (tmp_path / "secret").read_bytes() == b"short\n"
    assert local.read_bytes() == b"short\nmore\n"


def test_nothing_is_appended_to_a_copy_that_was_changed_here(remote: Path, tmp_path: Path) -> None:
    there = remote / "log" / ITEM / "progress.csv"
    there.write_bytes(b"a,b\n" + b"1,2\n" * 30_000)
    session = FolderSession(str(remote))
    root = tmp_path / "local"
    logs = ItemSelection(kinds=("log",), table="task")
    pull(session, str(root), logs)
    local = root / there.relative_to(remote)
    with local.open("r+b") as file:
        file.seek(60_000)
        file.write(b"x")
    with there.open("ab") as file:
        file.write(b"3,4\n")
    pull(session, str(root), logs)
    assert local.read_bytes() == there.read_bytes()


def test_what_a_pull_brings_is_not_unpickled_as_ones_own(remote: Path, tmp_path: Path) -> None:
    root = tmp_path / "local"
    kinds = ("log", "results", "checkpoint")
    for kind in kinds:
        below = remote / kind / ITEM / "shots"
        below.mkdir(parents=True, exist_ok=True)
        (below / "params.pkl").write_bytes(b"")
    (root / "log" / "own").mkdir(parents=True)
    (root / "log" / "own" / "params.pkl").touch()
    pull(FolderSession(str(remote)), str(root), ItemSelection(kinds=kinds, table="task"))
    for kind in kinds:
        path = root / kind / ITEM / "shots" / "params.pkl"
        assert pickle_problem(path) == "it came from another machine", kind
        (tmp_path / f"{kind}.pkl").symlink_to(path)
        assert pickle_problem(tmp_path / f"{kind}.pkl") == "it came from another machine", kind
    assert pickle_problem(root / "log" / "own" / "params.pkl") is None


def test_a_log_that_grows_while_it_is_fetched(remote: Path, tmp_path: Path) -> None:
    there = remote / "log" / ITEM / "progress.csv"
    there.write_bytes(b"a\n")

    class Growing(FolderSession):
        def read(self, path: bytes, offset: int, count: int) -> bytes:
            with there.open("ab") as file:
                file.write(b"1\n")
            return super().read(path, offset, count)

    root = tmp_path / "local"
    for _ in range(3):
        tally = pull(Growing(str(remote)), str(root), ItemSelection(kinds=("log",), table="task"))
        assert (tally.files, tally.failed) == (1, [])
    assert there.read_bytes().startswith((root / there.relative_to(remote)).read_bytes())
    assert sorted(os.listdir((root / there.relative_to(remote)).parent)) == ["progress.csv"]


@pytest.mark.slow
def test_pull_checks_what_came_of_an_ended_run(node: Node, master: Sshd, tmp_path: Path) -> None:
    node.run()
    for name in ("plain", "odd\nname", "back\\slash", "damaged", "edited"):
        (node.item("results") / name).write_bytes(name.encode() * 1000)
    node.start()
    wait_until(lambda: same_trees(node, master.root), 20)
    node.run(state="finished")
    sums = master.root / "log" / ITEM / "SHA256SUMS"
    wait_until(sums.exists, 20)
    wait_until(lambda: same_trees(node, master.root), 20)
    damaged = master.root / "results" / ITEM / "damaged"
    times = damaged.stat()
    damaged.write_bytes(b"D" + damaged.read_bytes()[1:])
    os.utime(damaged, (times.st_atime, times.st_mtime))
    edited = damaged.with_name("edited")
    edited.write_bytes(b"by hand")
    os.utime(edited, (sums.stat().st_mtime + 60,) * 2)
    tally = pull(FolderSession(str(master.root)), str(tmp_path / "laptop"), ItemSelection())
    (failed,) = (line for line in tally.failed if "is refused" not in line)
    assert failed.startswith(f"results/{ITEM}/damaged: not what the run's SHA256SUMS says")
    refused = len(tally.failed) - 1  # names with line breaks are not made here
    assert tally.files == len(items_only(tree(master.root))) - refused
    known = parse_sums(sums.read_bytes(), f"log/{ITEM}")
    assert known.keys() == {path for path in tree(node.root) if not path.endswith("SHA256SUMS")}


def test_what_is_newer_here_or_of_a_run_of_this_machine_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull into the data root of the machine that writes the run: the master's copy lags behind."""
    remote, local = tmp_path / "master", tmp_path / "data"
    monkeypatch.setenv("RLA_STATE_DIR", str(tmp_path / "state"))
    register(tmp_path / "state", local, tmp_path / "rla_config.yaml")
    for root, host in ((remote, "x"), (local, socket.gethostname())):
        for item in (ITEM, OTHER):
            folder = root / "log" / item
            folder.mkdir(parents=True)
            (folder / "progress.csv").write_text("a\n1\n" if root == remote else "a\n1\n2\n")
        (root / "log" / ITEM / "run.json").write_text(json.dumps({"host": host, "state": "running"}))
        (root / "log" / OTHER / "run.json").write_text(json.dumps({"host": "x", "state": "killed"}))
    later, earlier = (2e9, 2e9), (1e9, 1e9)
    os.utime(remote / "log" / ITEM / "progress.csv", later)  # its clock is ahead
    os.utime(remote / "log" / ITEM / "run.json", later)
    os.utime(remote / "log" / OTHER / "progress.csv", earlier)
    os.utime(remote / "log" / OTHER / "run.json", later)
    (remote / "log" / ITEM / "lost.json").write_text("lost here")
    before = tree(local)
    tally = pull(FolderSession(str(remote)), str(local), ItemSelection())
    assert len(tally.failed) == 3
    assert all("it is kept" in line for line in tally.failed)
    lost, run = f"log/{ITEM}/lost.json", f"log/{OTHER}/run.json"
    assert {**tree(local), run: ""} == {**before, run: "", lost: tree(remote)[lost]}
    copied = tmp_path / "copied"  # of the same runs, but nothing is sent from it: it follows the master
    shutil.copytree(local, copied)
    pull(FolderSession(str(remote)), str(copied), ItemSelection())
    assert (copied / "log" / ITEM / "progress.csv").read_text() == "a\n1\n"


def test_a_copy_that_has_grown_follows_also_when_the_masters_is_cut(tmp_path: Path) -> None:
    """Whatever came in while it was fetched, the copy is never taken for newer than the master's."""
    remote, local = tmp_path / "master", tmp_path / "laptop"
    there = remote / "log" / ITEM / "progress.csv"
    there.parent.mkdir(parents=True)
    there.write_text("a\n1\n")
    pull(FolderSession(str(remote)), str(local), ItemSelection())

    class Busy(FolderSession):
        def read(self, path: bytes, offset: int, count: int) -> bytes:
            with there.open("a") as file:
                file.write("9\n")
            os.utime(there, (1e9 + there.stat().st_size,) * 2)
            return super().read(path, offset, count)

    there.write_text("a\n1\n2\n")
    os.utime(there, (1e9, 1e9))
    assert pull(Busy(str(remote)), str(local), ItemSelection()).files == 1
    there.write_text("a\n1\n")
    os.utime(there, (1e9 + 500, 1e9 + 500))
    assert pull(FolderSession(str(remote)), str(local), ItemSelection()).failed == []
    assert (local / "log" / ITEM / "progress.csv").read_text() == "a\n1\n"


def test_what_killed_pulls_have_left_of_other_versions_goes(remote: Path, tmp_path: Path) -> None:
    """Where all files of the folder are here; a partial file that another pull may be writing stays."""
    local = tmp_path / "local"
    old, new = (
        local / kind / ITEM / f"{fetch_file.PARTIAL_PREFIX}{name}"
        for kind, name in (("checkpoint", "old"), ("log", "new"))
    )
    for path in (old, new):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"half")
    os.utime(old, (1e9, 1e9))
    assert pull(FolderSession(str(remote)), str(local), ItemSelection()).failed == []
    assert (old.exists(), new.exists()) == (False, True)


class Changing(FolderSession):
    """A master on which one table is moved away, and one may not be read, while it is listed."""

    def listing(self, path: bytes) -> list[tuple[bytes, RemoteStat]]:
        if path == b"log/a":
            shutil.rmtree(os.path.join(self._root, path))
        if path == b"log/b":
            raise DeniedError("list", path, "permission denied")
        return super().listing(path)


def test_a_table_that_is_moved_away_or_closed_costs_no_other(tmp_path: Path) -> None:
    for table in ("a", "b", "c"):
        folder = tmp_path / "master" / "log" / table / ITEM.partition("/")[2]
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    tally = pull(Changing(str(tmp_path / "master")), str(tmp_path / "laptop"), ItemSelection())
    assert (tally.files, tally.failed) == (1, ["list log/b: permission denied"])


def bits(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_what_is_pulled_is_never_more_open_than_on_the_master(remote: Path, tmp_path: Path) -> None:
    """Nor than its folder here and the umask allow; also what was pulled before."""
    (remote / "log" / ITEM).chmod(0o700)
    (remote / "log" / ITEM / "progress.csv").chmod(0o600)
    (remote / "checkpoint" / ITEM / "c_1.pt").chmod(0o4754)
    (remote / "results" / OTHER / "a" / "b.png").chmod(0o440)
    (remote / "log" / OTHER / "progress.csv").chmod(0o666)
    session, local = FolderSession(str(remote)), tmp_path / "local"
    assert pull(session, str(local), ItemSelection()).failed == []
    assert bits(local / "log" / ITEM) == 0o700
    assert bits(local / "log" / ITEM / "progress.csv") == 0o600
    assert bits(local / "checkpoint" / ITEM / "c_1.pt") == 0o754
    assert bits(local / "results" / OTHER / "a" / "b.png") == 0o440
    assert bits(local / "log" / OTHER / "progress.csv") == 0o644  # by the umask
    for path in (local / "log" / ITEM / "progress.csv", local / "log" / OTHER / "progress.csv"):
        path.chmod(0o644)
    (remote / "log" / OTHER / "progress.csv").chmod(0o600)
    assert pull(session, str(local), ItemSelection()).files == 0
    assert bits(local / "log" / ITEM / "progress.csv") == 0o600
    assert bits(local / "log" / OTHER / "progress.csv") == 0o600


@pytest.mark.parametrize(("umask", "root_mode"), [(0o077, 0o755), (0o022, 0o700)])
def test_what_is_pulled_into_a_private_place_is_private(
    remote: Path, tmp_path: Path, umask: int, root_mode: int
) -> None:
    local = tmp_path / "local"
    local.mkdir(mode=root_mode)
    before = os.umask(umask)
    try:
        assert pull(FolderSession(str(remote)), str(local), ItemSelection()).failed == []
    finally:
        os.umask(before)
    assert {bits(path) & 0o077 for path in local.rglob("*")} == {0}


def test_a_file_that_is_replaced_stays_as_private_as_it_was(remote: Path, tmp_path: Path) -> None:
    session, local = FolderSession(str(remote)), tmp_path / "local"
    pull(session, str(local), ItemSelection())
    for path in (local / "checkpoint" / ITEM / "c_1.pt", local / "log" / ITEM / "progress.csv"):
        path.chmod(0o600)
        there = remote / path.relative_to(local)
        there.write_bytes(random_bytes(10_000, 2) if path.suffix == ".pt" else there.read_bytes() + b"1\n")
        os.utime(there, (2_000_000_000, 2_000_000_000))
    assert pull(session, str(local), ItemSelection()).files == 2
    assert bits(local / "checkpoint" / ITEM / "c_1.pt") == 0o600
    assert bits(local / "log" / ITEM / "progress.csv") == 0o600


def test_nobody_else_can_read_what_is_being_pulled(remote: Path, tmp_path: Path) -> None:
    """Nor a part of it that somebody opened to all."""
    local = tmp_path / "local"
    seen: set[int] = set()

    class Looking(FolderSession):
        def read(self, path: bytes, offset: int, count: int) -> bytes:
            seen.update(bits(found) for found in local.rglob(".rla-tmp-*"))
            if offset > 5_000_000 and not cut:
                cut.append(1)
                next(local.rglob(".rla-tmp-*")).chmod(0o644)
                raise TransientError("read", path, "cut")
            return super().read(path, offset, count)

    cut: list[int] = []
    session = Looking(str(remote))
    assert len(pull(session, str(local), ItemSelection(kinds=("checkpoint",))).failed) == 1
    assert pull(session, str(local), ItemSelection(kinds=("checkpoint",))).failed == []
    assert seen == {0o600}
    assert cut
