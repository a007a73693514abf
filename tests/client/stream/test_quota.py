"""Shares of the spool: what runs hold and may add, and a count that takes a training call little time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.spooled import bare_opening

from rla_client.contract.spool.segments import stream_size
from rla_client.stream import quota as quota_module
from rla_client.stream.quota import SHARE_MEDIA, SHARE_ROWS, SHARE_TEXT, Quota

MIB = 1 << 20


def add_stream(spool: Path, number: int, size: int, run: str = "") -> str:
    """A stream whose blobs and segments hold `size` bytes together."""
    name = f"{number:016x}-1-0123abcd"
    (spool / name / "blobs").mkdir(parents=True)
    opening = bare_opening(run=run or "other").frame(1, 0, 0)
    (spool / name / "000001.seg").write_bytes(opening)
    os.truncate(spool / name / "000001.seg", size // 2)
    (spool / name / "blobs" / "1").touch()
    os.truncate(spool / name / "blobs" / "1", size - size // 2)
    return name


def quota_of(spool: Path, max_bytes: int, stream: str = "", run: object = None) -> Quota:
    quota = Quota(spool, max_bytes, 0.0)
    quota.begin(stream, run)
    quota.look(count=True)
    return quota


def test_all_bytes_count_and_media_are_refused_before_texts_before_rows(tmp_path: Path) -> None:
    name = add_stream(tmp_path, 1, 12 * MIB)
    full = [
        tuple(
            quota_of(tmp_path, limit * MIB, name).why_full(share) is not None
            for share in (SHARE_MEDIA, SHARE_TEXT, SHARE_ROWS)
        )
        for limit in (25, 23, 15, 12)
    ]
    assert full == [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]
    assert "its limit is 12 MiB" in str(quota_of(tmp_path, 12 * MIB).why_full(SHARE_ROWS, 1))


@pytest.mark.parametrize("share", [SHARE_MEDIA, SHARE_TEXT, SHARE_ROWS])
def test_a_run_that_takes_all_it_may_leaves_as_much_for_the_next(tmp_path: Path, share: int) -> None:
    limit, held = 64 * MIB, []
    for number in range(3):
        quota = quota_of(tmp_path, limit)
        held.append(quota.room(share))
        assert quota.why_full(share, held[-1]) is None
        assert quota.why_full(share, held[-1] + 1) is not None
        add_stream(tmp_path, number, held[-1])
        rest = limit - sum(held)
        assert held[-1] == pytest.approx(share * rest, abs=100)
    assert sum(held) < limit


def test_rows_have_room_beside_a_run_that_floods_the_spool_with_media(tmp_path: Path) -> None:
    limit = 28 * MIB
    add_stream(tmp_path, 1, quota_of(tmp_path, limit).room(SHARE_MEDIA))
    rows = add_stream(tmp_path, 2, 12 * MIB)
    assert quota_of(tmp_path, limit, rows).why_full(SHARE_ROWS) is None
    assert quota_of(tmp_path, limit, rows).why_full(SHARE_MEDIA) is not None


def test_all_streams_of_a_run_share(tmp_path: Path) -> None:
    add_stream(tmp_path, 1, 6 * MIB, "a")
    add_stream(tmp_path, 2, 6 * MIB, "b")
    mine = add_stream(tmp_path, 3, 6 * MIB, "a")
    assert quota_of(tmp_path, 28 * MIB, mine, "a").why_full(SHARE_MEDIA) is not None
    assert quota_of(tmp_path, 28 * MIB, mine, "c").why_full(SHARE_MEDIA) is None


def test_a_process_reads_once_of_which_run_a_stream_is(tmp_path: Path) -> None:
    name = add_stream(tmp_path, 1, 4 * MIB, "mine")
    first = quota_of(tmp_path, 64 * MIB, run="mine").room(SHARE_MEDIA)
    (tmp_path / name / "000001.seg").write_bytes(b"")
    os.truncate(tmp_path / name / "000001.seg", 2 * MIB)  # as large, without an opening
    assert quota_of(tmp_path, 64 * MIB, run="mine").room(SHARE_MEDIA) == first
    assert quota_of(tmp_path, 64 * MIB, run="another").room(SHARE_MEDIA) > first


def test_the_reserve_of_the_disk(tmp_path: Path) -> None:
    quota = Quota(tmp_path, 1 << 60, 1.1)
    quota.look(count=True)
    assert "above its reserve" in str(quota.why_full(SHARE_ROWS, 1))


def test_a_count_goes_on_from_call_to_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        add_stream(tmp_path, number, 1000)
    quota = quota_of(tmp_path, 5000)
    add_stream(tmp_path, 5, 1000)
    monkeypatch.setattr(quota_module, "COUNT_TURN_S", -1.0)  # a stream a call
    assert quota.why_full(SHARE_ROWS, 1) is not None, "a refusal has the next look begin a count"
    monkeypatch.setattr(quota_module, "RECOUNT_S", 0.0)
    quota._max_bytes = 7000
    found = []
    for _ in range(7):
        quota.look()
        found.append(quota.room(SHARE_ROWS))
    assert found[:6] == [found[0]] * 6
    assert found[6] < found[0], "the new stream counts once all were visited"


@pytest.mark.parametrize(("takes_s", "fresh_s"), [(0.0, 0.01), (0.002, 0.2), (0.5, 1.0)])
def test_counts_before_payloads_are_rarer_the_longer_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, takes_s: float, fresh_s: float
) -> None:
    add_stream(tmp_path, 1, MIB)
    now = [100.0]

    def slow_size(folder: str | os.PathLike[str]) -> tuple[int, int, float]:
        now[0] += takes_s
        return stream_size(folder)

    monkeypatch.setattr(quota_module, "stream_size", slow_size)
    monkeypatch.setattr(quota_module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    quota = quota_of(tmp_path, 64 * MIB)
    stale = []
    for passed_s in (0.99 * fresh_s, 0.02 * fresh_s):
        now[0] += passed_s
        stale.append(quota.stale)
    assert stale == [False, True]
    quota.look(count=True)
    quota.spend(quota.look_after + MIB)
    assert quota.stale, "more than this process's part was written"


def test_what_was_written_counts_before_it_was_counted(tmp_path: Path) -> None:
    quota = quota_of(tmp_path, 16 * MIB)
    before = quota.room(SHARE_MEDIA)
    quota.spend(4 * MIB)
    assert quota.room(SHARE_MEDIA) == before - 4 * MIB
    quota.spend(-4 * MIB)
    assert quota.room(SHARE_MEDIA) == before


def test_parts_of_all_writers_together_are_half_of_what_is_free(tmp_path: Path) -> None:
    for number in range(8):
        add_stream(tmp_path, number, MIB)
    quota = quota_of(tmp_path, 24 * MIB)
    assert quota.look_after == pytest.approx(MIB, rel=0.01)


def test_a_spool_that_cannot_be_seen_takes_no_media_and_rows_by_the_last_count(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    add_stream(spool, 1, 8 * MIB)
    quota = quota_of(spool, 24 * MIB)
    room = quota.room(SHARE_ROWS)
    spool.rename(tmp_path / "moved")
    for count in (False, True):
        quota.look(count=count)
        assert "cannot be read" in str(quota.why_full(SHARE_MEDIA))
        assert quota.room(SHARE_ROWS) == room, "the segment is open, and may be written wherever it lies"
    assert quota.why_full(SHARE_ROWS, room + 1) is not None
    (tmp_path / "moved").rename(spool)
    quota.look(count=True)
    assert quota.why_full(SHARE_MEDIA) is None
