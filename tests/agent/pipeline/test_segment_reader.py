"""Segments that cannot be read now, and opening frames that are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.few_descriptors import no_descriptors
from support.lone import LoneStream, Side

from rla_agent.pipeline.segment_reader import read_opening
from rla_client.contract.errors import SpoolError
from rla_client.contract.spool.protocol import FrameKind, encode_frame, pack
from rla_client.contract.spool.segments import segment_path


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def csv_rows(lone: LoneStream) -> int:
    return len((lone.root / "progress.csv").read_text().splitlines()) - 1


def test_rows_come_once_the_segment_can_be_read_again(lone: LoneStream) -> None:
    with Side(lone) as side:
        lone.row({"v": 1})
        side.read_all()
        lone.row({"v": 2})
        with no_descriptors():
            assert side.stream.read_more(side.files) is False
        assert "Too many open files" in str(side.stream.snapshot()["errors"])
        side.read_all()
        assert side.stream.snapshot()["errors"] == []
        side.commit()
    assert csv_rows(lone) == 2


@pytest.mark.parametrize("what", ["folder", "loop"])
def test_what_is_no_file_under_a_segments_name_holds_up_its_stream_only(lone: LoneStream, what: str) -> None:
    lone.row({"v": 1})
    with Side(lone) as side:
        path = segment_path(lone.writer.folder, 2 if what == "folder" else 1)
        if what == "folder":
            path.mkdir()
            (path / "x").touch()
        else:
            path.rename(path.with_name("aside"))
            path.symlink_to(path.name)
        side.stream.writer_left()
        for _ in range(5):
            side.stream.read_more(side.files)
        assert f"cannot read segment {2 if what == 'folder' else 1}, retrying" in str(
            side.stream.snapshot()["errors"]
        )
        assert not side.stream.at_end
        side.commit()
    assert csv_rows(lone) == (1 if what == "folder" else -1)


def test_what_an_output_lacks_is_not_given_up_for_a_read_that_failed(lone: LoneStream) -> None:
    with Side(lone) as side:
        output = side.stream.outputs[0]
        output.fail(OSError(28, "No space left on device"))
        lone.row({"v": 1})
        while side.stream.read_more(side.files):
            pass
        side.stream.writer_left()
        output.may_retry(float("inf"))
        with no_descriptors():
            side.stream.catch_up(output, side.files, 0.0)
        assert (side.stream.damaged, output.position < side.stream.position) == (0, True)
        side.read_all()
        side.commit()
    assert csv_rows(lone) == 1


def test_only_the_first_whole_frame_of_a_segment_can_open_it(lone: LoneStream) -> None:
    """Else eight MiB of rows are decoded at each look."""
    lone.row({"v": 1})
    path = segment_path(lone.writer.folder, 1)
    whole = path.read_bytes()
    row = encode_frame(FrameKind.ROW, pack([1, 1.0, {"x": 1}]))
    path.write_bytes(b"garbage" + whole)
    assert read_opening(lone.writer.folder)[0].run == "r"
    path.write_bytes(b"garbage" + row + whole)
    with pytest.raises(SpoolError, match="no readable opening frame"):
        read_opening(lone.writer.folder)


def test_an_opening_that_is_refused_says_why(lone: LoneStream) -> None:
    lone.opening["continues"] = {"rows": "x"}
    path = segment_path(lone.writer.folder, 1)
    path.write_bytes(encode_frame(FrameKind.OPEN, pack({**lone.opening, "rows": 0, "lost": 0})))
    with pytest.raises(SpoolError, match=r"continuation .* invalid literal"):
        read_opening(lone.writer.folder)
