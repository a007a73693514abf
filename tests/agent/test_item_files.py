"""Small whole files that come as records."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash.lone import LoneStream, Side

from rla_agent import item_files
from rla_agent.ingest import ItemFile
from rla_agent.opening import StreamOpening
from rla_client.protocol import FrameKind, encode_frame, pack
from rla_client.snapshot_job import encode_footer


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def file_frame(name: str, number: int) -> bytes:
    return encode_frame(FrameKind.FILE, pack(["log", name, b"%d" % number]))


def test_of_several_contents_of_a_file_only_the_last_is_written(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def note(opening: StreamOpening, file: ItemFile) -> None:
        written.append((file.path, file.content))
        keep(opening, file)

    keep = item_files.keep_item_file
    monkeypatch.setattr(item_files, "keep_item_file", note)
    with Side(lone) as side:
        for number in range(5):
            lone.writer.append(file_frame("params.pkl", number), 0)
            lone.writer.append(file_frame(f"itr_{number % 2}.pkl", number), 0)
        side.read_all()
        item_files.keep_new_files(side.stream, {}, 0.0)
        assert side.stream.new_files == []
    assert written == [("itr_1.pkl", b"3"), ("params.pkl", b"4"), ("itr_0.pkl", b"4")]
    assert (lone.root / "params.pkl").read_bytes() == b"4"


def test_a_snapshot_takes_no_place_of_a_later_one(lone: LoneStream) -> None:
    """The spool was full meanwhile, so the later one was written by the training itself."""

    def content(order: int) -> bytes:
        return b"pickle" + encode_footer({"token": "0" * 16, "order": order})

    for name, there, expected in (("params.pkl", 7, 7), ("itr_1.pkl", 4, 5)):
        (lone.root / name).write_bytes(content(there))
        lone.writer.append(encode_frame(FrameKind.FILE, pack(["log", name, content(5)])), 0)
        with Side(lone) as side:
            side.read_all()
            faults: dict[str, str] = {}
            item_files.keep_new_files(side.stream, faults, 0.0)
        assert faults == {}
        assert (lone.root / name).read_bytes() == content(expected)
