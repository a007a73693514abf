"""Whole files or none."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rla_client.contract.errors import BrokenFileError, UnsafeNameError
from rla_client.contract.files import (
    TEMP_PREFIX,
    atomic_file,
    claim_name,
    discard,
    file_mode,
    folder_mode,
    held_folder,
    make_folder,
    open_folder,
    open_plain,
    open_within,
    read_small,
    replacing,
    sqlite_address,
    temp_path,
    umask,
    write_atomic,
    written_bytes,
)


def test_a_file_is_written_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"one", mode=0o600)
    write_atomic(path, b"two", mode=0o600, durable=False)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["a"]


def test_an_error_leaves_the_old_content_and_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_atomic(path, b"old")
    with pytest.raises(RuntimeError), atomic_file(path) as file:  # noqa: PT012
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            write_atomic(tmp_path / "a", bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_a_name_of_full_length_works(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    write_atomic(path, b"1")
    assert path.read_bytes() == b"1"
    assert temp_path(path).name.startswith(TEMP_PREFIX)


def test_no_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "a", b"")


def test_a_kind_may_lie_elsewhere_and_nothing_else(tmp_path: Path) -> None:
    root, disk = tmp_path / "data", tmp_path / "disk"
    (disk / "task").mkdir(parents=True)
    root.mkdir()
    (root / "log").symlink_to(disk)
    (root / "code").symlink_to("../disk")
    (root / "linked").symlink_to(disk)
    (root / "checkpoint").symlink_to(tmp_path / "nowhere")
    (disk / "inner").symlink_to(tmp_path)
    (tmp_path / "named").symlink_to(root)
    for relative in ("log/task", "code/task"):
        with held_folder(tmp_path / "named", relative) as folder:
            write_atomic(folder / "a", b"1")
        assert (disk / "task" / "a").read_bytes() == b"1"
    for refused in ("linked", "linked/task", "log/inner", "log/inner/data"):
        with pytest.raises(NotADirectoryError):
            open_folder(root, refused, create=True)
    with pytest.raises(FileNotFoundError):
        open_folder(root, "checkpoint/task", create=True)
    for unsafe in ("../disk", "/", str(disk), "log/../../disk", "a\0b"):
        with pytest.raises(UnsafeNameError):
            open_folder(root, unsafe)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a link of somebody else")
def test_the_link_of_a_kind_is_the_users_or_roots(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    for owner in (0, 12345):
        (tmp_path / "log").symlink_to(tmp_path / "disk")
        os.lchown(tmp_path / "log", owner, owner)
        if owner:
            with pytest.raises(NotADirectoryError):
                open_folder(tmp_path, "log")
        else:
            os.close(open_folder(tmp_path, "log"))
        (tmp_path / "log").unlink()


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "file").write_bytes(b"12345")
    assert read_small(tmp_path / "file", 5) == b"12345"
    assert read_small(tmp_path / "link", 5, links=True) == b"12345"
    for name, links, part in [
        ("pipe", True, "a pipe"), ("device", True, "a device"), (".", True, "a folder"),
        ("link", False, "a link"), ("device", False, "a link"),
    ]:  # fmt: skip
        with pytest.raises(BrokenFileError, match=part):
            open_plain(tmp_path / name, links=links)
    with pytest.raises(BrokenFileError, match="larger than 4 bytes"):
        read_small(tmp_path / "file", 4)
    with pytest.raises(FileNotFoundError):
        open_plain(tmp_path / "nothing")
    os.truncate(tmp_path / "file", 1 << 30)
    with open_plain(tmp_path / "file") as file:
        assert written_bytes(file) < 1 << 20
        assert file.read(5) == b"12345"


def test_discarding_never_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_bytes(b"1")
    folder = tmp_path / "data" / "log"
    (folder / "full").mkdir(parents=True)
    (folder / "full" / "inner").symlink_to(tmp_path / "mine")
    (folder / "link").symlink_to(tmp_path / "mine")
    (folder / "up").symlink_to(tmp_path)
    for name in ("full", "link", "nothing"):
        discard(tmp_path / "data", "log", name)
    discard(tmp_path / "data", "log/up", "mine")
    discard(tmp_path / "data", "..", "mine")
    assert (tmp_path / "mine" / "file").read_bytes() == b"1"
    assert os.listdir(folder) == ["up"]


def test_a_file_that_is_replaced_hands_on_at_most_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for old, given, wanted in ((0o600, 0o644, 0o600), (0o644, 0o600, 0o600), (0o640, 0o644, 0o640)):
        path.write_bytes(b"old")
        path.chmod(old)
        write_atomic(path, b"new", mode=given)
        assert path.stat().st_mode & 0o777 == wanted


@pytest.mark.parametrize(
    ("folder", "file", "below"),
    [
        (0o700, 0o600, 0o700),
        (0o750, 0o640, 0o750),
        (0o755, 0o644, 0o755),
        (0o775, 0o664, 0o775),
        (0o2770, 0o660, 0o2770),
        (0o1777, 0o644, 0o755),
    ],
)
def test_what_is_made_in_a_folder_is_as_open_as_that(
    tmp_path: Path, folder: int, file: int, below: int
) -> None:
    """With the agent's umask; setgid is what the system hands on."""
    tmp_path.chmod(folder)
    before = os.umask(0)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        os.close(open_within("f", os.O_RDWR, descriptor))
        assert make_folder("d", descriptor)
        assert not make_folder("d", descriptor)
        write_atomic(tmp_path / "g", b"", mode=file_mode(tmp_path))
    finally:
        os.umask(before)
        os.close(descriptor)
        tmp_path.chmod(0o700)
    assert (file_mode(tmp_path), folder_mode(tmp_path)) == (0o600, 0o700)
    assert [(tmp_path / name).stat().st_mode & 0o7777 for name in "fgd"] == [file, file, below]


def test_a_file_that_is_there_is_opened_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "f").chmod(0o640)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    os.close(open_within("f", os.O_RDWR, descriptor))
    os.close(descriptor)
    assert (tmp_path / "f").read_bytes() == b"1"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640


def test_a_library_writes_the_temp_file(tmp_path: Path) -> None:
    final = tmp_path / "a.png"
    final.write_bytes(b"old")
    with pytest.raises(RuntimeError), replacing(final) as temp:  # noqa: PT012
        temp.write_bytes(b"half")
        raise RuntimeError
    assert final.read_bytes() == b"old"
    with replacing(final, temp=".rla-tmp-mine") as temp:
        assert temp == tmp_path / ".rla-tmp-mine"
        temp.write_bytes(b"new")
    assert final.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a.png"]


def test_a_file_is_written_in_an_open_folder(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, ".")
    tmp_path.chmod(0o750)
    before = os.umask(0)  # as in the agent
    try:
        with atomic_file("a", dir_fd=folder) as file:
            file.write(b"1")
        (tmp_path / "a").chmod(0o600)
        with atomic_file("a", dir_fd=folder) as file:
            file.write(b"2")
        with atomic_file("b", dir_fd=folder) as file:
            file.write(b"3")
    finally:
        os.umask(before)
        os.close(folder)
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"a": b"2", "b": b"3"}
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o600, 0o640]


@pytest.mark.parametrize("links", [True, False])
def test_what_has_the_name_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool) -> None:
    def refuse(*_names: object, **_more: object) -> None:
        raise OSError(errno.EPERM, "as on FAT")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    with atomic_file(tmp_path / "a", exclusive=True) as file:
        file.write(b"first")
    with pytest.raises(FileExistsError), atomic_file(tmp_path / "a", exclusive=True) as file:
        file.write(b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "b").symlink_to("nowhere")
    assert not claim_name(tmp_path / "a", tmp_path / "b")
    (tmp_path / "folder").mkdir()
    assert claim_name(tmp_path / "folder", tmp_path / "renamed")
    assert claim_name(tmp_path / "a", tmp_path / "c")
    assert sorted(os.listdir(tmp_path)) == ["b", "c", "renamed"]


@pytest.mark.parametrize(
    "name", ["a#b", "a?mode=memory", "100%", "%23", "a b", "ä", os.fsdecode(b"\xff"), "a&b=c;d"]
)
def test_an_sqlite_file_is_opened_whatever_its_name(tmp_path: Path, name: str) -> None:
    """And nothing is made beside it."""
    (tmp_path / name).mkdir()
    path = tmp_path / name / "x.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t AS SELECT 7 AS x")
    before = sorted(tmp_path.rglob("*"))
    for options in ("mode=ro", "mode=ro&immutable=1"):
        with closing(sqlite3.connect(sqlite_address(path, options), uri=True)) as db:
            assert db.execute("SELECT x FROM t").fetchone() == (7,)
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                db.execute("DELETE FROM t")
    path.unlink()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sqlite3.connect(sqlite_address(path), uri=True)
    assert sorted(tmp_path.rglob("*")) == [one for one in before if one != path]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_asking_for_the_umask_changes_nothing_for_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "umask", lambda _: pytest.fail("it was set"))
            assert umask() == 0o027
    finally:
        os.umask(before)
