"""Locks between open files and between processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla_client.contract.process.locks import holder_pid, is_locked, lock_record, try_lock, wait_for_lock

HOLD = """
import sys
from rla_client.contract.process.locks import lock_record, lock_record_of_process
file = open(sys.argv[2], "r+")
globals()[sys.argv[1]](file.fileno())
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Two descriptors of one file, opened apart."""
    descriptors = [os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2)]
    yield descriptors[0], descriptors[1]
    for descriptor in descriptors:
        os.close(descriptor)


def test_one_holds_it_and_is_named(opened: tuple[int, int]) -> None:
    first, second = opened
    assert try_lock(first)
    assert not try_lock(second)
    assert not try_lock(second, shared=True, timeout_s=0.05)
    assert holder_pid(second) == os.getpid()


def test_readers_share_it(opened: tuple[int, int]) -> None:
    first, second = opened
    assert try_lock(first, shared=True)
    assert try_lock(second, shared=True)
    assert not try_lock(second)


def test_the_next_waits_for_it(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first)
    next_one = threading.Thread(target=wait_for_lock, args=(second,))
    next_one.start()
    os.close(first)
    next_one.join(60)
    assert not next_one.is_alive()
    assert holder_pid(second) == os.getpid()
    os.close(second)


def test_a_free_one_has_no_holder(opened: tuple[int, int]) -> None:
    assert holder_pid(opened[0]) is None


def test_a_record_lock_of_an_open_file_is_seen_in_the_same_process(opened: tuple[int, int]) -> None:
    first, second = opened
    assert not is_locked(second, by_file=True)
    lock_record(first)
    assert is_locked(second, by_file=True)
    assert not is_locked(first, by_file=True), "its own"
    with pytest.raises(OSError):  # noqa: PT011 - EAGAIN or EACCES
        lock_record(second)


@pytest.mark.parametrize("kind", ["lock_record", "lock_record_of_process"])
def test_a_record_lock_ends_with_its_process(opened: tuple[int, int], tmp_path: Path, kind: str) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, kind, str(tmp_path / "lock")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert is_locked(opened[0])
        holder.kill()
    assert not is_locked(opened[0])
