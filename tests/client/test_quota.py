"""Limits of the spool: the disk's free space, and a count that takes a training call little time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla_client import quota as quota_module
from rla_client.quota import Quota


def spool_of(folder: Path, streams: int, size: int) -> Path:
    for number in range(streams):
        stream = folder / f"{number:016x}-1-0123abcd"
        (stream / "blobs").mkdir(parents=True)
        (stream / "000001.seg").write_bytes(b"x" * (size // 2))
        (stream / "blobs" / "1").write_bytes(b"x" * (size - size // 2))
    return folder


def test_a_full_spool_and_a_full_disk_are_told(tmp_path: Path) -> None:
    spool = spool_of(tmp_path, 3, 1 << 20)
    assert Quota(spool, 3 << 20, 0.0).why_full() is None
    assert "its limit is 2 MiB" in str(Quota(spool, (3 << 20) - 1, 0.0).why_full())
    assert "MiB free" in str(Quota(spool, 1 << 40, 1.1).why_full())
    assert "MiB free" in str(Quota(spool, 1 << 40, 1.1).look(1))


def test_a_count_goes_on_from_call_to_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_module, "COUNT_TURN_S", 0.0)  # a stream a call
    quota = Quota(spool_of(tmp_path, 5, 1000), 4999, 0.0)
    found = [quota.look(1)]
    while quota.counting:
        found.append(quota.look(1))
    assert len(found) == 6
    assert found[:-1] == [None] * 5
    assert "its limit is" in str(found[-1])
    assert quota.look(1) is None, "one count for each segment"


def test_a_segment_that_begins_during_a_count_gets_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_module, "COUNT_TURN_S", 0.0)
    quota = Quota(spool_of(tmp_path, 3, 1000), 3000, 0.0)
    assert quota.look(1) is None
    while quota.counting:
        assert quota.look(2) is None
    assert quota.look(2) is None
    assert quota.counting


def test_a_spool_that_cannot_be_seen_is_full_for_now(tmp_path: Path) -> None:
    quota = Quota(tmp_path / "gone", 1 << 30, 0.0)
    assert "cannot be looked at" in str(quota.why_full())
    assert "cannot be looked at" in str(quota.look(1))
    assert not quota.counting
