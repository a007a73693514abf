"""What a master announces is compared with the disk here, of which a reserve stays free."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.replication_lab import ITEM, random_bytes, tree

from rla_agent.replicate.backend.errors import LinkError
from rla_agent.replicate.backend.folder import FolderSession
from rla_agent.replicate.transfer.fetch_file import READ_BYTES, fetch
from rla_agent.replicate.transfer.fetch_pruned import fetch_noted
from rla_agent.replicate.transfer.fetch_run import Question, _fetch
from rla_agent.replicate.transfer.local_room import RESERVE_BYTES, NoRoomError, Room, reserve_bytes
from rla_agent.replicate.transfer.pull import pull
from rla_agent.replicate.transfer.selection import ItemSelection
from rla_client.contract.errors import NotBroughtError
from rla_client.contract.item.prune_notes import PrunedFile, read_note, write_note

SIZE = 40 << 20  # of the disk here
RESERVE = SIZE // 20
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small tmpfs"),
]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A data root on a small disk."""
    folder = tmp_path / "here"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def master(tmp_path: Path) -> Path:
    root = tmp_path / "master"
    for name in ("a", "z"):
        path = root / "results" / ITEM / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random_bytes(200_000))
    return root


def sparse(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def partials(folder: Path) -> list[Path]:
    return list(folder.rglob(".rla-tmp-*"))


class Filling(FolderSession):
    """Beside what is read, somebody else writes to the disk here."""

    def __init__(self, root: Path, ballast: Path) -> None:
        super().__init__(str(root))
        self._ballast = ballast

    def read(self, path: bytes, offset: int, count: int) -> bytes:
        if count == READ_BYTES or offset:
            with self._ballast.open("ab") as file:
                file.write(bytes(min(4 << 20, free(self._ballast.parent))))
        return super().read(path, offset, count)


def test_one_file_that_does_not_fit_costs_no_other(master: Path, here: Path) -> None:
    sparse(master / "results" / ITEM / "m", 8 << 40)
    sparse(master / "results" / ITEM / "n", SIZE - RESERVE)  # would fit without the reserve
    tally = pull(FolderSession(str(master)), str(here), ItemSelection())
    assert tally.files == 2
    first, second = sorted(tally.failed)
    assert first.startswith(f"results/{ITEM}/m: no room on this machine's disk: 8.0 TiB needed")
    assert "of which 2.0 MiB must stay free" in second
    assert free(here) > SIZE - (1 << 20)
    assert partials(here) == []


def test_what_a_killed_pull_has_left_does_not_stay_in_the_way(master: Path, here: Path) -> None:
    path = sparse(master / "results" / ITEM / "m", SIZE // 2)
    session = FolderSession(str(master))
    state = session.stat(str(path.relative_to(master)).encode())
    assert state is not None
    name = str(path.relative_to(master)).encode()

    def stop(_: str, done: int, __: int) -> None:
        if done > SIZE // 4:
            raise LinkError("read", b"", "cut")

    with pytest.raises(LinkError):
        fetch(session, str(here), name, state, stop)
    assert len(partials(here)) == 1
    (here / "ballast").write_bytes(bytes(free(here) - (8 << 20)))
    with pytest.raises(NoRoomError):
        fetch(session, str(here), name, state)
    assert partials(here) == []


@pytest.mark.parametrize("grows", [False, True])
def test_a_disk_that_others_fill_meanwhile(master: Path, here: Path, grows: bool) -> None:
    kind, name = ("log", "progress.csv") if grows else ("results", "m")
    there = master / kind / ITEM / name
    there.parent.mkdir(parents=True, exist_ok=True)
    there.write_bytes(b"1\n" * 500)
    local = here / there.relative_to(master)
    if grows:
        pull(FolderSession(str(master)), str(here), ItemSelection(kinds=("log",)))
    before = local.stat() if grows else None
    there.write_bytes(b"1\n" * (14 << 20))
    tally = pull(Filling(master, here / "ballast"), str(here), ItemSelection())
    assert [line.partition(": ")[2][:29] for line in tally.failed][-1] == "no room on this machine's dis"
    assert tally.files == 2 or (here / "ballast").stat().st_size > SIZE - RESERVE
    assert partials(here) == []
    if before is not None:
        assert local.read_bytes() == b"1\n" * 500
        assert local.stat().st_mtime_ns == before.st_mtime_ns
    else:
        assert not local.exists()
    (here / "ballast").unlink()
    there.write_bytes(b"1\n" * 1000)
    assert pull(FolderSession(str(master)), str(here), ItemSelection()).failed == []
    assert tree(here) == tree(master)


def test_a_full_disk_is_told_and_nothing_stays(
    master: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk says nothing of a quota before it is reached."""
    sparse(master / "results" / ITEM / "m", SIZE // 2)
    (here / "ballast").write_bytes(bytes(SIZE // 2 + (1 << 20)))
    monkeypatch.setattr(Room, "_check", lambda *_, **__: None)
    tally = pull(FolderSession(str(master)), str(here), ItemSelection())
    (line,) = tally.failed
    assert (
        line == f"results/{ITEM}/m: no room on this machine's disk: No space left on device; free space there"
    )
    assert tally.files == 2
    assert partials(here) == []


def test_files_that_come_at_a_time_share_what_is_free(here: Path) -> None:
    room, place = Room(), os.open(here, os.O_RDONLY)
    with room.promised(place, SIZE // 2) as wrote:
        with pytest.raises(NoRoomError), room.promised(place, SIZE // 2):
            pass
        (here / "file").write_bytes(bytes(SIZE // 4))
        wrote(SIZE // 4)
        with room.promised(place, SIZE // 4):
            pass
    with room.promised(place, SIZE // 2):
        pass
    os.close(place)
    assert reserve_bytes(100 << 40) == RESERVE_BYTES


def test_a_pruned_file_that_has_no_room_stays_on_the_master(master: Path, here: Path) -> None:
    folder = here / "checkpoint" / ITEM
    folder.mkdir(parents=True)
    there = sparse(master / "checkpoint" / ITEM / "c_1.pt", SIZE)
    sha = hashlib.sha256(b"").hexdigest()
    write_note(
        folder, PrunedFile(f"checkpoint/{ITEM}/c_1.pt", SIZE, sha, 10**18, f"folder:{master}", time.time())
    )
    note = read_note(str(folder), "c_1.pt")
    assert note is not None
    with pytest.raises(NoRoomError, match=r"c_1\.pt: no room on this machine's disk"):
        fetch_noted(FolderSession(str(master)), str(folder), note)
    assert partials(here) == []
    assert read_note(str(folder), "c_1.pt") == note
    assert there.exists()


def test_a_run_that_has_no_room_is_not_half_brought_here(master: Path, here: Path) -> None:
    table, _, index = ITEM.partition("/")
    run = {"run_key": "key", "state": "killed", "run_id": "r", "host": "a", "updated": time.time()}
    (master / "log" / ITEM).mkdir(parents=True)
    (master / "log" / ITEM / "run.json").write_text(json.dumps(run))
    checkpoint = sparse(master / "checkpoint" / ITEM / "checkpoint_10.pt", 1000)
    sparse(master / "checkpoint" / ITEM / ".resume" / "checkpoint_10.state", SIZE)
    question = Question("", str(here / "data"), table, "key", "checkpoint", "")
    with pytest.raises(NotBroughtError, match="is not brought here from the master: no room"):
        _fetch(FolderSession(str(master)), question)
    assert list(here.iterdir()) == []
    sparse(checkpoint.parent / ".resume" / "checkpoint_10.state", 1000)
    assert _fetch(FolderSession(str(master)), question)["index"] == index
