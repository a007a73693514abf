"""Folders below a data root, reached without links."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_client.contract.errors import UnsafeNameError
from rla_client.contract.filesystem.atomic_write import write_atomic
from rla_client.contract.filesystem.safe_paths import discard, held_folder, open_folder


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
