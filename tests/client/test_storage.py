"""Whole files or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla_client.storage import TEMP_PREFIX, atomic_file, temp_path, write_atomic


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
