"""Whole files or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_client.storage import (
    TEMP_PREFIX,
    atomic_file,
    file_mode,
    folder_mode,
    make_folder,
    open_within,
    temp_path,
    write_atomic,
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
