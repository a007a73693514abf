"""What is appended ends with whole records."""

from __future__ import annotations

import struct

from hypothesis import given, strategies

from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.outputs.file_content import line_ends
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.replicate.worker import pieces


@given(strategies.lists(strategies.text("ab\n\"', ", max_size=40), max_size=30), strategies.integers(1, 60))
def test_csv_pieces_are_whole_rows(cells: list[str], limit: int) -> None:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for cell in cells:
        writer.writerow([cell, "x"])
    data = out.getvalue().encode()
    parts = pieces.pieces(data + b"torn,", CsvEncoder.ends, limit, cut=True)
    assert b"".join(parts) == data
    rows: list[list[str]] = []
    for part in parts:
        rows += list(csv.reader(io.StringIO(part.decode(), newline="")))
    assert [row[0] for row in rows] == cells
    assert b"".join(pieces.pieces(data + b"torn,", CsvEncoder.ends, limit, cut=False)) == data + b"torn,"


def test_pieces_keep_to_the_limit() -> None:
    data = b"".join(b"%04d %s\n" % (n, b"x" * (n % 50)) for n in range(2000))
    parts = pieces.pieces(data, line_ends, 32 << 10, cut=True)
    assert max(len(part) for part in parts) <= 32 << 10
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") for part in parts)


def test_event_records() -> None:
    record = struct.pack("<QI", 5, 0) + b"hello" + struct.pack("<I", 0)
    data = record * 3
    assert EventEncoder.ends(data + record[:-1]) == [21, 42, 63]
    assert pieces.pieces(data + record[:9], EventEncoder.ends, 50, cut=True) == [record * 2, record]
    assert EventEncoder.ends(b"\xff" * 40) == []
