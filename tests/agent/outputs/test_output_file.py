"""Output: its bytes on disk, whatever a disk or a user does to the file."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
from pathlib import Path

import pytest

from rla_agent.model.records import Batch, Position, Record, Row, Samples
from rla_agent.model.stream_states import OutputState
from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.outputs.open_files import OpenFiles
from rla_agent.outputs.output_file import Output
from rla_agent.outputs.samples_encoder import SamplesEncoder
from rla_agent.outputs.text_encoder import TextEncoder
from rla_client.contract.filesystem.safe_paths import ItemGoneError
from rla_client.contract.spool.protocol import TextTarget


def csv_output(root: Path) -> Output:
    (root / "item").mkdir(exist_ok=True)
    return Output("csv", str(root), "item", "progress.csv", CsvEncoder, CsvEncoder())


def rows(start: int, *values: dict[str, float]) -> Batch:
    records = [Record(start + n + 1, Row(n, 0.5, dict(row), None)) for n, row in enumerate(values)]
    return Batch(1, start, start + len(values), records)


def test_rows_are_in_the_first_size_bytes(tmp_path: Path) -> None:
    output, files = csv_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}, {"a": 2.0}), files)
    content = Path(output.path).read_bytes()
    assert content == b"a,time-step,timestamp\n1.0,0,0.5\n2.0,1,0.5\n"
    assert (output.size, output.position) == (len(content), Position(1, 2))
    files.close_all()


def test_a_refused_write_leaves_no_trace_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, files = csv_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}), files)
    before = Path(output.path).read_bytes()
    real = os.pwrite

    def short(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) > 3:
            return real(descriptor, data[:3], offset)
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as context:
        context.setattr(os, "pwrite", short)
        output.accept(rows(1, {"a": 2.0}), files)
    assert output.blocked
    assert "progress.csv" in output.error
    assert Path(output.path).read_bytes() == before
    assert not output.may_retry(0.0)
    assert output.may_retry(float("inf"))
    output.accept(rows(1, {"a": 2.0}), files)
    assert Path(output.path).read_bytes() == before + b"2.0,0,0.5\n"
    files.close_all()


def test_a_new_column_stops_it_before_the_row(tmp_path: Path) -> None:
    output, files = csv_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}, {"a": 2.0, "late": 1.0}, {"a": 3.0}), files)
    assert output.state is OutputState.WIDENING
    assert output.position == Position(1, 1)
    files.close_all()


def test_a_short_file_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    output, files = csv_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}, {"a": 2.0}), files)
    os.truncate(output.path, output.size - 2)
    output.state = OutputState.NEW  # another agent
    output.begin(files)
    assert Path(output.path).read_bytes() == b"a,time-step,timestamp\n1.0,0,0.5\n"
    assert output.size == os.path.getsize(output.path)
    assert output.encoder.rows == 1
    assert bool(output.blocked), "agent.db knows of two rows, and would count on the next one as the second"
    output.stored()
    assert not output.blocked
    files.close_all()


def test_a_removed_folder_is_not_made_again(tmp_path: Path) -> None:
    output, files = csv_output(tmp_path), OpenFiles(4)
    with pytest.raises(ItemGoneError):
        Output("csv", str(tmp_path), "gone", "progress.csv", CsvEncoder, CsvEncoder()).open_file()
    output.begin(files)
    assert not output.replaced(files)
    Path(output.path).unlink()
    assert output.replaced(files)
    files.close_all()


def test_the_least_recently_used_descriptor_is_closed(tmp_path: Path) -> None:
    files = OpenFiles(2)
    owners = [csv_output(tmp_path) for _ in range(3)]
    os.close(owners[0].open_file(create=True))
    opened = [files.descriptor(owner) for owner in owners[:2]]
    assert files.descriptor(owners[0]) == opened[0]
    files.descriptor(owners[2])
    assert len(files) == 2
    assert files.known(owners[1]) is None
    assert files.descriptor(owners[0]) == opened[0]
    files.close_all()
    assert len(files) == 0


def test_only_what_lies_below_the_item_is_made(tmp_path: Path) -> None:
    (tmp_path / "log" / "run").mkdir(parents=True)
    item = os.path.join("log", "run")
    folder = os.path.join(item, "tb", "events")
    output = Output(
        "csv",
        str(tmp_path),
        folder,
        "progress.csv",
        CsvEncoder,
        CsvEncoder(),
        item=item,
    )
    files = OpenFiles(4)
    output.begin(files)
    assert Path(output.path).exists()
    shutil.rmtree(tmp_path / "log" / "run" / "tb")
    with pytest.raises(FileNotFoundError):
        output.open_file()
    shutil.rmtree(tmp_path / "log")
    for attempt in (output.begin, output.adopt_replacement):
        with pytest.raises(ItemGoneError):
            attempt(files)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("evicted", [False, True])
def test_an_error_of_close_is_that_of_the_file_that_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, evicted: bool
) -> None:
    output, files = csv_output(tmp_path), OpenFiles(1)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}), files)
    real = os.close

    def fails(descriptor: int) -> None:
        ours = os.readlink(f"/proc/self/fd/{descriptor}") == output.path
        real(descriptor)
        if ours:
            raise OSError(errno.EIO, "Input/output error")

    other = Output("log", str(tmp_path), "item", "log.txt", CsvEncoder, CsvEncoder())
    with monkeypatch.context() as context:
        context.setattr(os, "close", fails)
        if evicted:
            other.begin(files)
        else:
            files.close(output)
    assert output.state is OutputState.SUSPECT
    assert not output.storable
    assert other.state is not OutputState.SUSPECT
    files.close_all()


def test_a_removed_file_is_made_again_a_while_later(tmp_path: Path) -> None:
    """Whoever removes a whole item must not find a new file in a folder that was just emptied."""
    output, files = csv_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}), files)
    Path(output.path).unlink()
    assert output.replaced(files)
    output.adopt_replacement(files)
    assert output.blocked
    assert not Path(output.path).exists()
    assert output.may_retry(float("inf"))
    output.begin(files)
    output.accept(rows(1, {"b": 2.0}), files)
    assert Path(output.path).read_bytes() == b"b,time-step,timestamp\n2.0,0,0.5\n"
    files.close_all()


def test_rows_only_leave_text_files_alone(tmp_path: Path) -> None:
    (tmp_path / "item").mkdir()

    def new() -> TextEncoder:
        return TextEncoder(TextTarget.WARN, tables=False)

    output, files = Output("warn", str(tmp_path), "item", "warn.txt", new, new()), OpenFiles(4)
    output.begin(files)
    output.synced()
    batch = rows(0, {"a": 1.0}, {"a": 2.0})
    batch.only_rows = True
    output.accept(batch, files)
    assert (output.position, output.size, output.dirty) == (Position(1, 2), 0, False)
    files.close_all()


def samples_output(root: Path) -> Output:
    (root / "log").mkdir(exist_ok=True)
    encoder = SamplesEncoder("")
    return Output(
        "samples",
        str(root),
        "samples/run",
        "samples.jsonl.gz",
        lambda: SamplesEncoder(""),
        encoder,
        item="log",
        lazy=True,
    )


def samples(start: int) -> Batch:
    return Batch(1, start, start + 1, [Record(start + 1, Samples("train", start, 1.0, 0, [{"a": start}]))])


def test_a_lazy_file_is_made_with_its_first_record(tmp_path: Path) -> None:
    output, files = samples_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(rows(0, {"a": 1.0}), files)
    assert not (tmp_path / "samples").exists()
    assert (output.state, output.blocked, output.storable) == (OutputState.READY, False, True)
    output.accept(samples(1), files)
    assert output.storable is False
    content = Path(output.path).read_bytes()
    assert len(content) == output.size
    again = samples_output(tmp_path)
    again.restore_row(output.row())
    again.begin(files)
    again.accept(samples(2), files)
    assert Path(output.path).read_bytes().startswith(content)
    assert again.encoder.rows == 2
    files.close_all()


def test_a_lazy_file_that_was_removed_is_made_again_unless_the_item_is_gone(tmp_path: Path) -> None:
    output, files = samples_output(tmp_path), OpenFiles(4)
    output.begin(files)
    output.accept(samples(0), files)
    shutil.rmtree(tmp_path / "samples")
    assert output.descriptor_to_sync(files) is None
    assert output.may_retry(float("inf"))
    output.begin(files)
    output.stored()
    output.accept(samples(1), files)
    assert gzip.decompress(Path(output.path).read_bytes()).count(b"\n") == 1
    shutil.rmtree(tmp_path / "samples")
    gone = samples_output(tmp_path)
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(ItemGoneError):
        gone.begin(files)
    assert not (tmp_path / "samples").exists()
    files.close_all()


def test_the_last_bytes_of_a_disk_are_for_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, output, files = csv_output(tmp_path), samples_output(tmp_path), OpenFiles(4)
    for one in (table, output):
        one.begin(files)
    real = os.statvfs(tmp_path)
    low = list(real)
    low[4] = (1 << 20) // real.f_frsize  # f_bavail
    with monkeypatch.context() as context:
        context.setattr(os, "statvfs", lambda _: os.statvfs_result(low))
        output.accept(samples(0), files)
        table.accept(rows(0, {"a": 1.0}), files)
    assert "No space" in output.error
    assert (table.error, table.position) == ("", Position(1, 1))
    assert output.may_retry(float("inf"))
    output.accept(samples(0), files)
    assert output.position == Position(1, 1)
    files.close_all()
