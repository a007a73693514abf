"""SegmentWriter: what is appended is there, whole, once; short writes, interrupted steps, a full disk."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.few_descriptors import run_with_few

import rla_client.stream.segment_writer as spool_module
from rla_client.contract.errors import SpoolError
from rla_client.contract.spool.protocol import FrameKind, encode_frame, iter_frames, pack
from rla_client.contract.spool.segments import segment_numbers, segment_path
from rla_client.stream.segment_writer import SegmentWriter


def opening(number: int, rows: int) -> bytes:
    return encode_frame(FrameKind.OPEN, pack({"segment": number, "rows": rows}))


def row(seq: int, size: int = 20) -> bytes:
    return encode_frame(FrameKind.ROW, pack([seq, 1.0, {"x": "y" * size}]))


def rows_in(folder: Path) -> list[bytes]:
    return [
        frame.payload
        for number in segment_numbers(folder)
        for frame in iter_frames(segment_path(folder, number).read_bytes())
        if frame.kind == FrameKind.ROW
    ]


def payloads(*seqs: int, size: int = 20) -> list[bytes]:
    return [row(seq, size)[12:] for seq in seqs]


@pytest.fixture
def writer(tmp_path: Path) -> SegmentWriter:
    return SegmentWriter(tmp_path, opening)


def test_segments_are_self_contained_and_in_order(
    writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 1000)
    for seq in range(100):
        writer.append(row(seq), 1)
    assert rows_in(writer.folder) == payloads(*range(100))
    assert len(segment_numbers(writer.folder)) >= 5
    for number in segment_numbers(writer.folder):
        data = segment_path(writer.folder, number).read_bytes()
        assert next(iter_frames(data)).kind == FrameKind.OPEN
        assert len(data) <= 1000
    assert (writer.rows, writer.frames) == (100, 100)
    assert not [name for name in os.listdir(writer.folder) if name.startswith(".")]


def test_a_frame_larger_than_a_segment_gets_one_of_its_own(
    writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 1000)
    for seq in range(3):
        writer.append(row(seq, 5000), 1)
    assert rows_in(writer.folder) == payloads(0, 1, 2, size=5000)


def test_a_short_write_is_undone(writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.append(row(0), 1)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    with pytest.raises(SpoolError):
        writer.append(row(1), 1)
    monkeypatch.undo()
    assert segment_path(writer.folder, 1).stat().st_size == writer.size
    writer.append(row(1), 1)
    assert rows_in(writer.folder) == payloads(0, 1)


def test_a_short_write_that_cannot_be_undone_is_left_behind(
    writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(row(0), 1)
    real = os.write

    def short(descriptor: int, data: bytes) -> int:
        return real(descriptor, data[:7] if data == row(1) else data)

    def refused(_descriptor: int, _size: int) -> None:
        raise OSError(5, "no")

    monkeypatch.setattr(os, "write", short)
    monkeypatch.setattr(os, "ftruncate", refused)
    with pytest.raises(SpoolError):
        writer.append(row(1), 1)
    monkeypatch.undo()
    writer.append(row(1), 1)
    assert writer.number == 2
    assert rows_in(writer.folder) == payloads(0, 1)


@pytest.mark.parametrize("call", ["open", "write", "rename"])
@pytest.mark.parametrize("calls", [1, 2])
def test_a_stream_that_cannot_be_begun_leaves_nothing(
    call: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., object] = getattr(os, call)
    count = [0]

    def refused(*arguments: object, **named: object) -> object:
        count[0] += 1
        if count[0] == calls:
            raise OSError(28, "no space")
        return real(*arguments, **named)

    with monkeypatch.context() as context:
        context.setattr(os, call, refused)
        with pytest.raises(SpoolError, match="no space"):
            SegmentWriter(tmp_path, opening)
    assert os.listdir(tmp_path) == []


class BoomError(Exception):
    pass


@pytest.mark.parametrize("call", ["write", "rename", "open", "close", "fstat"])
@pytest.mark.parametrize("after", [True, False])
def test_an_exception_beside_any_system_call(
    call: str, after: bool, writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    returned: list[int] = []
    count = [0]
    real: Callable[..., object] = getattr(os, call)

    def sometimes(*arguments: object, **named: object) -> object:
        count[0] += 1
        bad = count[0] % 5 == 0
        if bad and not after:
            raise BoomError
        result = real(*arguments, **named)
        if bad:
            raise BoomError
        return result

    monkeypatch.setattr(os, call, sometimes)
    for seq in range(300):
        try:
            writer.append(row(seq), 1)
        except BoomError:
            continue
        returned.append(seq)
    monkeypatch.undo()
    writer.append(row(300), 1)
    found = rows_in(writer.folder)
    assert len(found) == len(set(found)), "a row is there twice"
    assert set(found) >= set(payloads(*returned, 300))
    assert found == sorted(found, key=[*payloads(*range(301))].index)
    assert (writer.rows, writer.frames) == (len(found), len(found))
    assert writer.size == segment_path(writer.folder, writer.number).stat().st_size
    assert writer.number == max(segment_numbers(writer.folder))


@pytest.mark.parametrize("call", ["write", "rename", "open"])
@pytest.mark.parametrize("after", [True, False])
def test_a_handler_that_logs_beside_any_system_call(
    call: str, after: bool, writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", 600)
    real: Callable[..., object] = getattr(os, call)
    inner = [1000]
    inside = [False]

    def handler() -> None:
        if not inside[0]:
            inside[0] = True
            writer.append(row(inner[0]), 1)
            inner[0] += 1
            inside[0] = False

    def interrupted(*arguments: object, **named: object) -> object:
        if not after:
            handler()
        result = real(*arguments, **named)
        if after:
            handler()
        return result

    monkeypatch.setattr(os, call, interrupted)
    for seq in range(100):
        writer.append(row(seq), 1)
    monkeypatch.undo()
    writer.append(row(100), 1)
    found = rows_in(writer.folder)
    assert sorted(found) == sorted(payloads(*range(101), *range(1000, inner[0])))
    assert (writer.rows, writer.frames) == (len(found), len(found))
    assert writer.size == segment_path(writer.folder, writer.number).stat().st_size


@pytest.mark.parametrize("gone", ["folder", "segment"])
@pytest.mark.parametrize("calls", range(14))
def test_a_segment_that_was_deleted_is_written_anew_also_while_a_handler_logs(
    writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch, gone: str, calls: int
) -> None:
    """A record that comes between any two system calls of it is there, once and in order."""
    for seq in range(3):
        writer.append(row(seq), 1)
    base = writer.folder / "000001.base"
    base.write_bytes(b"{}")
    assert writer.check()
    shutil.rmtree(writer.folder) if gone == "folder" else segment_path(writer.folder, 1).unlink()
    writer.append(row(3), 1)
    assert not writer.check()
    left = [calls]
    for name in ("open", "write", "pread", "rename", "close"):
        real = getattr(os, name)

        def beside(*arguments: object, real: Callable[..., object] = real, **options: object) -> object:
            done = real(*arguments, **options)
            left[0] -= 1
            if left[0] == 0:
                writer.append(row(4), 1)
            return done

        monkeypatch.setattr(os, name, beside)
    writer.write_anew()
    monkeypatch.undo()
    writer.verify()
    writer.append(row(5), 1)
    expected = [0, 1, 2, 3, 4, 5] if left[0] <= 0 < calls else [0, 1, 2, 3, 5]
    assert rows_in(writer.folder) == payloads(*expected)
    assert writer.check()
    assert base.read_bytes() == b"{}"
    assert not [name for name in os.listdir(writer.folder.parent) if name != writer.name]
    assert sorted(os.listdir(writer.folder)) == ["000001.base", "000001.seg", "lock"]


@pytest.mark.parametrize("gone", ["folder", "segment"])
def test_a_deleted_segment_that_cannot_be_written_anew_leaves_no_copies_behind(
    writer: SegmentWriter, gone: str
) -> None:
    """Each try on a full disk takes back what it wrote; the first that succeeds has all."""
    for seq in range(9):
        writer.append(row(seq), 1)
    shutil.rmtree(writer.folder) if gone == "folder" else segment_path(writer.folder, 1).unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        for _ in range(3):
            with pytest.raises(SpoolError):
                writer.write_anew()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in writer.folder.parent.rglob("*.*") if path.name.startswith(".")] == []
    writer.write_anew()
    assert rows_in(writer.folder) == payloads(*range(9))


def test_a_deleted_segment_that_was_cut_does_not_hold_the_writer_up(writer: SegmentWriter) -> None:
    writer.append(row(0), 1)
    path = segment_path(writer.folder, 1)
    os.truncate(path, 5)
    path.unlink()
    with pytest.raises(SpoolError, match="cut"):
        writer.write_anew()


def test_append_only_after_a_number_of_frames(writer: SegmentWriter) -> None:
    writer.append(row(0), 1, 0)
    writer.append(row(0), 1, 0)
    writer.append(row(1), 1, 1)
    assert rows_in(writer.folder) == payloads(0, 1)


def test_an_unwritable_spool_is_a_spool_error(tmp_path: Path) -> None:
    with pytest.raises(SpoolError):
        SegmentWriter(tmp_path / "not there", opening)


def test_an_interrupted_opening_leaves_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.rename

    def interrupted(source: object, target: object) -> None:
        real(source, target)  # type: ignore[arg-type]
        if str(target).count("-") >= 2 and not str(target).endswith(".seg"):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        SegmentWriter(tmp_path, opening)
    assert os.listdir(tmp_path) == []


WITHOUT_DESCRIPTORS = """
from pathlib import Path
from rla_client.contract.errors import SpoolError
from rla_client.stream.segment_writer import SegmentWriter
take_all()
for free in range(3):  # the lock, /proc/self/stat and the segment need one each
    try:
        SegmentWriter(Path(sys.argv[1]), lambda number, rows: b"x").abandon()
        print("begun")
    except SpoolError as error:
        print("refused")
    give_one()
"""


def test_a_stream_that_cannot_begin_for_want_of_descriptors_is_refused_and_removed(tmp_path: Path) -> None:
    done = run_with_few(WITHOUT_DESCRIPTORS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["refused", "refused", "begun"]
    assert len(list(tmp_path.iterdir())) == 1, "of those refused nothing is left"


@pytest.mark.parametrize("step", [False, True])
def test_a_record_that_comes_between_while_the_file_is_measured_is_counted_once(
    writer: SegmentWriter, monkeypatch: pytest.MonkeyPatch, step: bool
) -> None:
    """As from a signal handler: `size` was too large from then on, and the agent could take a row twice."""
    if step:
        monkeypatch.setattr(spool_module, "SEGMENT_MAX_BYTES", writer.size + 2 * len(row(0)))
    writer.append(row(0), 1)
    os.write(writer._descriptor, row(1))  # an append that an exception ended before it was counted
    writer.unsettled = True
    measured = iter_frames
    came: list[bool] = []

    def interrupted(tail: bytes) -> object:
        if not came:
            came.append(True)
            writer.append(row(2), 1)
        return measured(tail)

    monkeypatch.setattr(spool_module, "iter_frames", interrupted)
    writer.append(row(3), 1)
    assert rows_in(writer.folder) == payloads(0, 1, 2, 3)
    assert (writer.rows, writer.frames) == (4, 4)
    assert writer.size == segment_path(writer.folder, writer.number).stat().st_size
    assert not writer.unsettled
