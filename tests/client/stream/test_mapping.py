"""Memory mapped from files: what it keeps, and for how long."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest
from support.descriptors import open_below
from support.forked import in_forked_child

from rla_client.stream.mapping import ALLOCATE_BYTES, create_mapped, read_briefly


def is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_a_mapping_keeps_lock_and_bytes_without_a_descriptor(tmp_path: Path) -> None:
    mapping = create_mapped(str(tmp_path / "a"), 10_000)
    assert open_below(tmp_path) == []
    mapping.view()[9_000:9_004] = b"here"
    assert (tmp_path / "a").read_bytes()[8_999:9_005] == b"\0here\0"
    assert is_locked(tmp_path / "a")
    mapping.close()
    mapping.close()
    assert not is_locked(tmp_path / "a")


def test_it_ends_with_the_last_who_uses_it(tmp_path: Path) -> None:
    mapping = create_mapped(str(tmp_path / "a"), 1)
    assert is_locked(tmp_path / "a")
    del mapping
    assert not is_locked(tmp_path / "a")


def test_a_forked_child_neither_has_nor_closes_it(tmp_path: Path) -> None:
    mapping = create_mapped(str(tmp_path / "a"), 1)

    def child() -> bool:
        mapping.close()
        return True

    assert in_forked_child(child)
    mapping.view()[0] = 7
    assert is_locked(tmp_path / "a")
    mapping.close()


def test_what_is_given_up_or_there_already_leaves_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(OSError, match="no longer wanted"):
        create_mapped(str(tmp_path / "a"), ALLOCATE_BYTES, stop)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "b").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        create_mapped(str(tmp_path / "b"), 100)
    assert (tmp_path / "b").read_bytes() == b"theirs"
    assert open_below(tmp_path) == []


def test_a_file_of_the_kernel_is_read() -> None:
    assert b"MemTotal:" in read_briefly("/proc/meminfo")
    with pytest.raises(FileNotFoundError, match="/nowhere/at/all"):
        read_briefly("/nowhere/at/all")
    with pytest.raises(IsADirectoryError):
        read_briefly("/proc")
