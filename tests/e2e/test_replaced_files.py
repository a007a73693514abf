"""Files that a user removes, puts back or replaces under a live run: none is cut, and no row doubled."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.lone import LoneStream, Side
from support.oracle import event_records

import rla_client.stream.segment_writer as spool_module
from rla_agent.model.stream_states import OutputState
from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.outputs.encoder import Encoder, WholePart
from rla_agent.outputs.json_encoder import JsonEncoder
from rla_agent.outputs.output_file import Output, whole_part
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.outputs.text_encoder import TextEncoder
from rla_agent.pipeline import segment_base
from rla_agent.pipeline.segment_base import renew_base
from rla_client.contract.errors import RemoteProtocolError
from rla_client.contract.spool.protocol import TextTarget
from rla_client.contract.spool.segments import base_path, segment_numbers

INF = float("inf")
LONG = b"x" * 200_000  # more than the csv module takes in a cell


@pytest.fixture
def lone(tmp_path: Path) -> LoneStream:
    return LoneStream(tmp_path)


def csv_of(side: Side) -> Output:
    return next(output for output in side.stream.outputs if output.name == "csv")


def seqs(lone: LoneStream) -> list[int]:
    lines = (lone.root / "progress.csv").read_text().splitlines()
    column = lines[0].split(",").index("seq")
    return [int(line.split(",")[column]) for line in lines[1:]]


def write(lone: LoneStream, side: Side, rows: int) -> None:
    for _ in range(rows):
        lone.row({"v": lone.rows})
    side.settle()


def notice_removal(lone: LoneStream, side: Side) -> None:
    """A row makes the stream dirty, and the commit finds no file."""
    lone.row({"v": 0})
    side.read()
    side.commit()
    assert csv_of(side).state is OutputState.NEW


def test_a_file_that_is_put_back_is_not_cut(lone: LoneStream, tmp_path: Path) -> None:
    csv = lone.root / "progress.csv"
    with Side(lone) as side:
        write(lone, side, 10)
        csv.rename(tmp_path / "elsewhere.csv")
        notice_removal(lone, side)
        (tmp_path / "elsewhere.csv").rename(csv)
        write(lone, side, 3)
    assert seqs(lone) == list(range(14))
    assert csv.read_text().count("seq") == 1


@pytest.mark.parametrize("left", [0, 100])
def test_a_file_that_is_emptied_in_place_gets_no_zeros(lone: LoneStream, left: int) -> None:
    """As `> progress.csv` and logrotate's copytruncate do it; noticed before the next row."""
    csv, events = lone.root / "progress.csv", lone.root / "tb" / "events"
    with Side(lone) as side:
        write(lone, side, 10)
        (event_file,) = events.iterdir()
        for file in (csv, event_file):
            os.truncate(file, left)
        kept = max(csv.read_text().count("\n") - 1, 0)
        write(lone, side, 3)
        os.truncate(csv, csv.stat().st_size - 1)  # but for its end, the row is there
        write(lone, side, 1)
    assert seqs(lone) == [*range(kept), 10, 11, 12, 13]
    assert b"\0" not in csv.read_bytes()
    assert event_records(event_file)


def test_an_event_file_that_is_put_back_is_not_cut(lone: LoneStream, tmp_path: Path) -> None:
    with Side(lone) as side:
        write(lone, side, 10)
        (events,) = (lone.root / "tb" / "events").iterdir()
        (lone.root / "tb").rename(tmp_path / "tb")
        lone.row({"v": 0})
        side.read()
        side.commit()
        (tmp_path / "tb").rename(lone.root / "tb")
        write(lone, side, 3)
        assert not side.stream.removed
    assert len(event_records(events)) == 15


def test_a_removed_folder_below_the_item_is_made_again(lone: LoneStream) -> None:
    with Side(lone) as side:
        write(lone, side, 10)
        shutil.rmtree(lone.root / "tb")
        lone.row({"v": 0})
        side.read()
        side.commit()
        assert not side.stream.removed
        write(lone, side, 3)
    (events,) = (lone.root / "tb" / "events").iterdir()
    assert len(event_records(events)) == 4
    assert seqs(lone) == list(range(14))


def test_another_file_is_gone_on_in_under_its_own_columns(lone: LoneStream) -> None:
    csv = lone.root / "progress.csv"
    with Side(lone) as side:
        write(lone, side, 2)
        (lone.root / "new").write_text("v,time-step,timestamp\n7,0,1.0\n8,1,1.0")
        (lone.root / "new").rename(csv)
        notice = csv_of(side)
        notice.touch()
        side.stream.touch()
        side.commit()
        assert not notice.moved, "agent.db knows the new file"
        write(lone, side, 2)
        assert notice.encoder.rows == 4
    assert csv.read_text() == ("v,time-step,timestamp,seq\n7,0,1.0,\n8,1,1.0,\n2,2,2.0,2\n3,3,3.0,3\n")


def test_what_holds_no_record_is_put_aside(lone: LoneStream) -> None:
    with Side(lone) as side:
        write(lone, side, 2)
        (events,) = (lone.root / "tb" / "events").iterdir()
        (lone.root / "new").write_text("my notes")
        (lone.root / "new").rename(events)
        write(lone, side, 1)
        write(lone, side, 1)
    aside, kept = sorted((lone.root / "tb" / "events").iterdir(), key=lambda path: ".old-" not in path.name)
    assert aside.read_text() == "my notes"
    assert len(event_records(kept)) == 2


def text() -> TextEncoder:
    return TextEncoder(TextTarget.LOG, tables=True)


def events() -> EventEncoder:
    return EventEncoder(0.0)


@pytest.mark.parametrize(
    ("new", "content", "found"),
    [
        (CsvEncoder, b"a,b\n1,2\n", WholePart(8, b"", {"rows": 1, "columns": ["a", "b"]})),
        (CsvEncoder, b"a,b\n1,2", WholePart(7, b"\n", {"rows": 1, "columns": ["a", "b"]})),
        (CsvEncoder, b"a,b\n1,2\n3", WholePart(8, b"", {"rows": 1, "columns": ["a", "b"]})),
        (CsvEncoder, b'a,b\n1,2\n3,"x\n', WholePart(8, b"", {"rows": 1, "columns": ["a", "b"]})),
        (CsvEncoder, b"a,b", WholePart(3, b"\n", {"rows": 0, "columns": ["a", "b"]})),
        (CsvEncoder, b'"a', WholePart(0, b"", {"rows": 0, "columns": []})),
        (JsonEncoder, b'{"a": 1}\n{"a": 2}', WholePart(17, b"\n", {"rows": 2})),
        (JsonEncoder, b'{"a": 1}\n{"a"', WholePart(9, b"", {"rows": 1})),
        (JsonEncoder, b'{"a"', WholePart(0, b"", {"rows": 0})),
        (text, b"one\ntw", WholePart(6, b"\n", {})),
        (events, events().head() + b"\0\0", WholePart(len(events().head()), b"", {})),
        (events, b"no record", WholePart(0, b"", {})),
        (
            CsvEncoder,
            b'"' + LONG + b'"\n1\n',
            WholePart(200_005, b"", {"rows": 1, "columns": [LONG.decode()]}),
        ),
        (CsvEncoder, b"a\n" + LONG, WholePart(200_002, b"\n", {"rows": 1, "columns": ["a"]})),
        (CsvEncoder, b'"' + LONG, WholePart(0, b"", {"rows": 0, "columns": []})),
        (JsonEncoder, b"[" * 200_000, WholePart(0, b"", {})),
    ],
)
def test_whole_part(tmp_path: Path, new: Callable[[], Encoder], content: bytes, found: WholePart) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert whole_part(descriptor, new()) == found
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("removed", [False, True])
def test_killed_after_a_file_was_made_again(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch, *, removed: bool, forgotten: bool
) -> None:
    """At each moment from then on: the rows that the new file has are neither doubled nor lost."""
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    with Side(lone) as side:
        write(lone, side, 20)
        if removed:
            (lone.root / "progress.csv").unlink()
        else:
            (lone.root / "new").write_text("seq,time-step,timestamp,v\n")
            (lone.root / "new").rename(lone.root / "progress.csv")
        csv_of(side).touch()
        side.stream.touch()
        side.commit()
        if removed:
            assert csv_of(side).moved
            assert csv_of(side).blocked
        for _ in range(2):
            lone.row({"v": 1})
        side.read(5)
        side.begin()
        side.serve()  # killed before the commit that would know of it
    first = 20
    for rows in (1, 3, 30):
        if forgotten:
            lone.forget_database()
        with Side(lone) as side:
            write(lone, side, rows)
            for _ in range(2):  # not committed when the next kill comes
                lone.row({"v": 1})
            side.read(5)  # they may lie in two segments
        assert seqs(lone)[-1] == lone.rows - 1
    with Side(lone) as side:
        side.settle()
    found = seqs(lone)
    assert found == sorted(set(found))
    assert found[-1] == lone.rows - 1
    assert set(range(first, lone.rows)) <= set(found)


def test_the_base_that_is_there_is_told_of_another_file(lone: LoneStream) -> None:
    with Side(lone) as side:
        write(lone, side, 3)
        (number,) = segment_numbers(lone.writer.folder)
        (lone.root / "progress.csv").unlink()
        notice_removal(lone, side)
        write(lone, side, 2)
        position = csv_of(side).position
        base = json.loads(base_path(lone.writer.folder, number).read_bytes())["outputs"]
        assert base["csv"]["size"] == 0
        assert (number, 0) < tuple(base["csv"]["position"]) < position
        assert base["json"]["position"] == [number, 0]
        renew_base(side.stream, [csv_of(side)])
    lone.forget_database()
    with Side(lone) as side:
        write(lone, side, 1)
    assert seqs(lone) == [4, 5, 6]


@pytest.mark.parametrize(
    "damaged", [{"control": {"rows": 0}, "outpuus": {}}, {"control": {}, "outputs": []}, {"outputs": {}}, 5]
)
def test_a_damaged_base_is_written_anew(lone: LoneStream, damaged: object) -> None:
    with Side(lone) as side:
        write(lone, side, 3)
        (number,) = segment_numbers(lone.writer.folder)
        base_path(lone.writer.folder, number).write_text(json.dumps(damaged))
        (lone.root / "progress.csv").unlink()
        notice_removal(lone, side)
        write(lone, side, 2)
        base = json.loads(base_path(lone.writer.folder, number).read_bytes())
        assert set(base["outputs"]) == {output.name for output in side.stream.outputs}
    lone.forget_database()
    with Side(lone) as side:
        write(lone, side, 1)
    assert seqs(lone) == [4, 5, 6]
    assert len((lone.root / "progress.json").read_text().splitlines()) == 7, "no row is lost or doubled"


@pytest.mark.parametrize("known", [5, {"file": "progress.csv", "generation": INF}, {"file": "progress.csv"}])
def test_a_base_that_makes_no_sense_of_an_output_ends_no_agent(lone: LoneStream, known: object) -> None:
    with Side(lone) as side:
        write(lone, side, 3)
        (number,) = segment_numbers(lone.writer.folder)
        base = json.loads(base_path(lone.writer.folder, number).read_bytes())
        base["outputs"]["csv"] = known
        base_path(lone.writer.folder, number).write_text(json.dumps(base))
    lone.forget_database()
    with pytest.raises(RemoteProtocolError, match="of csv, makes no sense"):
        Side(lone)


def test_while_the_base_cannot_be_told_nothing_is_stored(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Side(lone) as side:
        write(lone, side, 3)
        (lone.root / "progress.csv").unlink()
        notice_removal(lone, side)
        side.begin()
        before = side.database.outputs_of(side.stream.name)["csv"]

        def full(_stream: object, _outputs: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as context:
            context.setattr("rla_agent.pipeline.group_commit.renew_base", full)
            side.commit()
        assert side.database.outputs_of(side.stream.name)["csv"] == before
        assert csv_of(side).blocked
        write(lone, side, 1)
    assert seqs(lone) == [4]


def test_no_segment_goes_for_a_base_that_would_tell_what_is_not_durable(
    lone: LoneStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    with Side(lone) as side:
        with monkeypatch.context() as context:
            context.setattr(segment_base, "freeable", lambda _stream: [])
            write(lone, side, 40)
        csv_of(side).forget_bases(side.stream.position.number)
        csv_of(side).touch()
        assert segment_base.freeable(side.stream) == []
        side.commit()
        assert len(segment_numbers(lone.writer.folder)) == 1
