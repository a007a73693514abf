from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboardX.record_writer import RecordWriter

from rla_client.contract.errors import ArgumentError
from rla_client.readers import read_csv, read_events, read_json, read_tb


def write(folder: Path, content: bytes | str, name: str = "progress.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_csv_values_come_back_exactly(tmp_path: Path) -> None:
    frame = read_csv(
        write(tmp_path, 'a,b,flag,note,time-step\n0.1,nan,True,"x, ""y""\nz",1\n-inf,,False,NA,2\n')
    )
    assert list(frame.columns) == ["a", "b", "flag", "note", "time-step"]
    assert frame["a"].tolist() == [0.1, -np.inf]
    assert frame["b"].isna().all()
    assert frame["flag"].tolist() == [True, False]
    assert frame["note"].tolist() == ['x, "y"\nz', "NA"]
    assert frame["time-step"].dtype == "int64"


def test_csv_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path, "a\n1\n")
    assert read_csv(str(tmp_path))["a"].tolist() == [1]


def test_csv_cut_anywhere_gives_whole_rows_only(tmp_path: Path) -> None:
    rows = [(1.5, "plain"), (2.25, 'quo"te'), (3.125, "two\nlines"), (4.0, ",")]
    text = "value,text\n" + "".join(
        f'{value},"{text.replace(chr(34), chr(34) * 2)}"\n' for value, text in rows
    )
    data = text.encode()
    ends = [len(text)]
    for cut in range(len(data) + 1):
        frame = read_csv(write(tmp_path, data[:cut]))
        found = list(zip(frame["value"], frame["text"], strict=True)) if len(frame) else []
        assert found == rows[: len(found)]
        ends.append(len(found))
    assert ends[-1] == 4
    assert ends[1:] == sorted(ends[1:])


def test_csv_after_a_power_cut_ends_at_the_nuls(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, b"a,b\n1,2\n3,\0\0\0\0\n\0\0"))["a"].tolist() == [1]


def test_csv_of_the_original_with_empty_and_overlong_rows(tmp_path: Path) -> None:
    frame = read_csv(write(tmp_path, "a,b,c\n,,\n1,2,3\n,,\n4,5,it, is, more\n6,,\n"))
    assert frame["a"].tolist() == [1, 4, 6]
    assert frame["c"].tolist()[:2] == ["3", "it"]


def test_csv_with_a_first_row_longer_than_the_header_takes_no_index(tmp_path: Path) -> None:
    frame = read_csv(write(tmp_path, "a,b\n1,2,3\n4,5\n"))
    assert frame["a"].tolist() == [1, 4]
    assert frame["b"].tolist() == [2, 5]


def test_csv_with_comment_lines_before_the_header(tmp_path: Path) -> None:
    assert read_csv(write(tmp_path, '#{"t_start": 1}\nr,#n\n1,2\n')).columns.tolist() == ["r", "#n"]


@pytest.mark.parametrize("content", ["", "\n", "a,b", "#only\n"])
def test_csv_without_a_row_is_an_empty_frame(tmp_path: Path, content: str) -> None:
    assert len(read_csv(write(tmp_path, content))) == 0


def test_missing_files_say_so(tmp_path: Path) -> None:
    for read in (read_csv, read_json, read_tb):
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="no TensorBoard event file"):
        read_tb(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.tuples(st.floats(), st.text(st.characters(exclude_categories=["Cs", "Cc"]))), min_size=1))
def test_csv_round_trip(tmp_path: Path, rows: list[tuple[float, str]]) -> None:
    import csv

    path = tmp_path / "progress.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["time-step", "value", "text"])
        writer.writerows((step, repr(value), f"_{text}") for step, (value, text) in enumerate(rows))
    frame = read_csv(path)
    assert repr(frame["value"].astype(float).tolist()) == repr([value for value, _ in rows])
    assert frame["text"].tolist() == [f"_{text}" for _, text in rows]


def test_csv_files_of_the_original(legacy_source: Path) -> None:
    files = [path for path in sorted(legacy_source.rglob("progress.csv")) if path.stat().st_size]
    assert files
    for path in files:
        lines = path.read_text().splitlines()
        whole = [line for line in lines[1:] if set(line) != {","}]
        frame = read_csv(path)
        assert len(frame) == len(whole)
        assert frame.columns.tolist() == lines[0].split(",")


def test_json_lines_with_a_torn_tail(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": 1, "b": [1, 2]}\n{"a": NaN, "c": Infinity}\n{"a": 3', "progress.json")
    frame = read_json(path)
    assert frame["a"].tolist()[0] == 1
    assert np.isnan(frame["a"].tolist()[1])
    assert frame["b"].tolist()[0] == [1, 2]
    assert frame["c"].tolist()[1] == np.inf
    assert len(read_json(tmp_path)) == 2


@pytest.mark.parametrize("line", ["{broken", "[1]", "3"])
def test_json_that_is_damaged_inside_says_where(tmp_path: Path, line: str) -> None:
    with pytest.raises(ArgumentError, match="line 2"):
        read_json(write(tmp_path, f'{{"a": 1}}\n{line}\n{{"a": 2}}\n', "progress.json"))


def event(step: int, **values: float) -> Event:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    return Event(step=step, wall_time=1000.0 + step, summary=summary)


def event_file(folder: Path, *events: Event, name: str = "events.out.tfevents.1.host") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    record = RecordWriter(str(folder / name))
    for one in (Event(wall_time=1.0, file_version="brain.Event:2"), *events):
        record.write(one.SerializeToString())
    record.close()
    return folder / name


def test_tb_scalars_by_step(tmp_path: Path) -> None:
    path = event_file(
        tmp_path, event(0, a=1.0), event(5, a=2.0, b=-1.0), event(3, b=float("nan")), event(5, a=2.5)
    )
    for source in (path, str(tmp_path)):
        frame = read_tb(source)
        assert frame.index.name == "step"
        assert frame.index.tolist() == [0, 3, 5]
        assert frame.columns.tolist() == ["a", "b"]
        assert frame.loc[5].tolist() == [2.5, -1.0]
        assert frame["b"].isna().tolist() == [True, True, False]  # at 3 it was NaN


def test_tb_several_files_and_folders(tmp_path: Path) -> None:
    event_file(tmp_path / "tb/events", event(1, a=1.0), name="events.out.tfevents.1.h")
    event_file(tmp_path / "tb/events", event(2, a=2.0), name="events.out.tfevents.2.h")
    assert read_tb(tmp_path)["a"].tolist() == [1.0, 2.0]
    event_file(tmp_path / "tb/worker", event(2, a=9.0))
    assert read_tb(tmp_path)["a"].tolist() == [1.0, 2.0]
    assert read_tb(tmp_path).loc[2, "worker/a"] == 9.0
    assert read_tb(tmp_path / "tb").columns.tolist() == ["a", "worker/a"]


def test_tb_scalars_as_tensors_of_tensorflow_2(tmp_path: Path) -> None:
    scalars = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))

    def tensor(step: int, metadata: SummaryMetadata | None, **fields: Any) -> Event:
        value = Summary.Value(tag="loss")
        if metadata is not None:
            value.metadata.CopyFrom(metadata)
        for name, content in fields.items():
            field = getattr(value.tensor, name)
            field.extend(content) if isinstance(content, list) else setattr(value.tensor, name, content)
        return Event(step=step, summary=Summary(value=[value]))

    path = event_file(
        tmp_path,
        tensor(1, scalars, dtype=1, float_val=[0.5]),
        tensor(2, None, dtype=1, tensor_content=struct.pack("<f", 0.25)),
        tensor(3, None, dtype=2, tensor_content=struct.pack("<d", 0.125)),
        tensor(4, None, dtype=9, int64_val=[7]),
        tensor(5, None, dtype=1, tensor_content=b"12345678"),
    )
    assert read_tb(path)["loss"].to_dict() == {1: 0.5, 2: 0.25, 3: 0.125, 4: 7.0}


def test_tb_cut_anywhere_gives_the_whole_records(tmp_path: Path) -> None:
    path = event_file(tmp_path, *(event(step, a=float(step)) for step in range(1, 5)))
    data = path.read_bytes()
    counts = []
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        events = list(read_events(path))
        counts.append(len(events))
        frame = read_tb(path)
        assert frame.index.tolist() == list(range(1, len(events)))
    assert counts == sorted(counts)
    assert counts[-1] == 5


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_tb_with_a_flipped_bit_never_shows_a_wrong_value(tmp_path: Path, data: st.DataObject) -> None:
    path = event_file(tmp_path, *(event(step, a=float(step)) for step in range(1, 5)))
    content = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    frame = read_tb(path)
    assert frame.columns.tolist() in ([], ["a"])
    assert all(values == {"a": step} for step, values in frame.to_dict("index").items())


def test_tb_agrees_with_tensorboards_own_reader(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    random = np.random.default_rng(0)
    path = event_file(tmp_path, *(event(step, a=random.normal(), b=random.normal()) for step in range(50)))
    theirs = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    ours = read_tb(path)
    for tag in ("a", "b"):
        assert {found.step: found.value for found in theirs.Scalars(tag)} == ours[tag].to_dict()


def test_tb_files_of_the_original(legacy_source: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = next(path for path in sorted(legacy_source.rglob("*tfevents*")) if path.stat().st_size > 10_000)
    theirs = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    ours = read_tb(path)
    assert set(ours.columns) == set(theirs.Tags()["scalars"])
    for tag in ours.columns:
        expected = {found.step: found.value for found in theirs.Scalars(tag)}
        assert ours[tag].dropna().to_dict() == pytest.approx(expected, nan_ok=True)


def test_the_module_itself_imports_nothing_heavy() -> None:
    code = (
        "import sys, rla_client.logger, rla_client.stream.values\n"
        "import rla_client.contract.text.printed_row, rla_client.run.record.time_tracker\n"
        "print({'numpy', 'pandas', 'torch', 'tensorboardX', 'crc32c'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
