"""Reading files that are there: the header of a CSV, and where whole records end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rla_agent.model.records import Record, Row
from rla_agent.outputs import file_content as file_content_module
from rla_agent.outputs.csv_encoder import CsvEncoder, offset_of_row, read_header, to_csv
from rla_agent.outputs.encoder import Encoder
from rla_agent.outputs.file_content import FileContent, read_chunks
from rla_agent.outputs.json_encoder import JsonEncoder
from rla_agent.outputs.output_file import whole_part
from rla_agent.outputs.tensorboard import EventEncoder


@pytest.mark.parametrize(
    "columns",
    [
        ["a", "b"],
        ["", "b"],
        ["a", ""],
        ['"', '""', 'a"b', '","'],
        ["a,b", "c\nd", "e\r\nf", "g\rh", " i "],
        ["x" * 300_000, "y,\n" * 200_000],
        [f"key{number}" for number in range(65_538)],
    ],
)
def test_a_header_comes_back_whatever_its_names_are(tmp_path: Path, columns: list[str]) -> None:
    (tmp_path / "progress.csv").write_bytes(to_csv([columns, [1] * len(columns)]))
    descriptor = os.open(tmp_path / "progress.csv", os.O_RDONLY)
    try:
        assert read_header(descriptor) == columns
    finally:
        os.close(descriptor)


ROWS = [Record(0, Row(step, 1.5, {"x": step, "t": text}, None)) for step, text in enumerate(["a", '"\n\r"'])]


def events() -> EventEncoder:
    return EventEncoder(1.0)


@pytest.mark.parametrize("new", [CsvEncoder, JsonEncoder, events])
def test_where_records_end_does_not_depend_on_the_blocks_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: Callable[[], Encoder]
) -> None:
    """At each length of a file, in blocks of each size."""
    encoder = new()
    content = encoder.head() + encoder.encode(ROWS)[0]
    is_events = new is events
    path = tmp_path / "file"
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        descriptor = os.open(path, os.O_RDONLY)
        try:
            monkeypatch.setattr(file_content_module, "CHUNK_BYTES", 1 << 20)
            whole, end = whole_part(descriptor, new()), new().end_of_records(FileContent(descriptor, size))
            row_ends = [offset_of_row(read_chunks(descriptor, size), rows) for rows in range(4)]
            for block in range(1, min(size, 70) + 1):
                monkeypatch.setattr(file_content_module, "CHUNK_BYTES", block)
                assert whole_part(descriptor, new()) == whole
                assert new().end_of_records(FileContent(descriptor, size)) == end
                assert [offset_of_row(read_chunks(descriptor, size), rows) for rows in range(4)] == row_ends
        finally:
            os.close(descriptor)
        assert end == (whole.size if is_events else content[:size].rfind(b"\n") + 1)


def test_damaged_events_are_not_read_to_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a bad record counts for nothing, however much it is."""
    encoder = events()
    good = encoder.head()
    row = encoder.encode(ROWS[:1])[0]
    for flipped in (0, 9, 15, len(row) - 1):
        bad = bytes(byte ^ (255 if at == flipped else 0) for at, byte in enumerate(row))
        (tmp_path / "file").write_bytes(good + bad + row * 50)
        for block in (1, 7, len(row), 1 << 20):
            monkeypatch.setattr(file_content_module, "CHUNK_BYTES", block)
            descriptor = os.open(tmp_path / "file", os.O_RDONLY)
            try:
                assert whole_part(descriptor, events()).size == len(good)
            finally:
                os.close(descriptor)
