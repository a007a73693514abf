"""Whole files or none."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from rla_client.contract.filesystem.atomic_write import (
    TEMP_PREFIX,
    atomic_file,
    claim_name,
    replacing,
    temp_path,
    write_atomic,
)
from rla_client.contract.filesystem.safe_paths import open_folder


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


def test_a_file_that_is_replaced_hands_on_at_most_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for old, given, wanted in ((0o600, 0o644, 0o600), (0o644, 0o600, 0o600), (0o640, 0o644, 0o640)):
        path.write_bytes(b"old")
        path.chmod(old)
        write_atomic(path, b"new", mode=given)
        assert path.stat().st_mode & 0o777 == wanted


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
