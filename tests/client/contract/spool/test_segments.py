"""The spool, read: names, sizes; nothing is read from what is not ours."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rla_client.contract.errors import SpoolError
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import (
    STREAM_NAME,
    new_stream_name,
    read_at,
    segment_path,
    spool_bytes,
)
from rla_client.stream.segment_writer import SegmentWriter


def opening(number: int, rows: int) -> bytes:
    return encode_frame(FrameKind.OPEN, pack({"segment": number, "rows": rows}))


@pytest.fixture
def writer(tmp_path: Path) -> SegmentWriter:
    return SegmentWriter(tmp_path, opening)


def test_a_clock_before_1970_names_a_stream_that_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: -(10**18))
    assert STREAM_NAME.match(new_stream_name())


def test_spool_bytes_counts_streams_only(writer: SegmentWriter, tmp_path: Path) -> None:
    writer.append(encode_frame(FrameKind.ROW, pack([0, 1.0, {}])), 1)
    (tmp_path / "other").write_bytes(b"x" * 999)
    lock = (writer.folder / "lock").stat().st_size
    assert spool_bytes(tmp_path) == segment_path(writer.folder, 1).stat().st_size + lock


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "foreign"])
def test_nothing_is_read_from_what_is_not_ours(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "000001.seg"
    (tmp_path / "real").write_bytes(b"rows")
    if kind == "link":
        path.symlink_to("real")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        if os.geteuid() != 0:
            pytest.skip("needs root to give a file away")
        path.write_bytes(b"rows")
        os.chown(path, 12345, 12345)
    with pytest.raises(SpoolError, match="nothing is read from it"):
        read_at(path, 0, 10)
    assert read_at(tmp_path / "real", 0, 10) == b"rows"
