"""Files of an earlier stream, cut to where the next one goes on: in pieces, whatever their size."""

from __future__ import annotations

import csv
import io
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.spooled import bare_opening

from rla_agent.model.records import Record, Row
from rla_agent.outputs import file_content
from rla_agent.outputs.csv_encoder import CsvEncoder
from rla_agent.outputs.encoder import Encoder, RowEncoder
from rla_agent.outputs.formats import FORMATS
from rla_agent.outputs.output_file import Output
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.pipeline.resume_fork import continue_outputs
from rla_client.contract.layout import OUTPUT_NAMES
from rla_client.contract.spool.opening import Continuation

TEXTS = ("plain", 'a "quoted"\ntext, too', "\u00e4\n\n")
STEPS = range(30)
TABLES = {
    OUTPUT_NAMES[name]: partial(form.new, bare_opening())
    for name, form in FORMATS.items()
    if name in OUTPUT_NAMES and isinstance(form.new(bare_opening()), CsvEncoder | RowEncoder)
}
"""Files of rows, each with a factory of its encoders."""
ROWS = [{"x": number / 2, "note": TEXTS[number % 3]} for number in STEPS]
Events = partial(EventEncoder, 5.0)
EVENTS = "events.out.tfevents.5.h.1.u"


def left_behind(
    root: Path, folder: str, name: str, encoder: Callable[[], Any], rows: Sequence[dict[str, Any]]
) -> Output:
    """An output whose file holds rows, each of a time-step of its own, as a stream before left it."""
    (root / folder).mkdir(exist_ok=True, parents=True)
    records = [Record(n + 1, Row(n, 0.5, dict(row), None)) for n, row in enumerate(rows)]
    made = encoder()  # its first row writes the header of a table
    encoded, taken = made.encode(records)
    assert taken == len(records)
    (root / folder / name).write_bytes(made.head() + encoded)
    return Output("one", str(root), folder, name, encoder, encoder())


def steps_of(content: bytes, encoder: Encoder) -> list[int]:
    if isinstance(encoder, RowEncoder):
        ends = encoder.ends(content)
        return [int(encoder.time_step(content[start:end])) for start, end in pairwise([0, *ends])]
    return [int(row["time-step"]) for row in csv.DictReader(io.StringIO(content.decode(), newline=""))]


def test_files_of_rows() -> None:
    assert TABLES.keys() >= {"progress.csv", "progress.json"}


@pytest.mark.parametrize("piece", [1, 7, 100, 1 << 20])
@pytest.mark.parametrize(
    ("plan", "kept"),
    [
        (Continuation(rows=0), 0),
        (Continuation(rows=11), 11),
        (Continuation(rows=99), 30),
        (Continuation(), 30),
        (Continuation(time_step=10.0), 11),
        (Continuation(time_step=-1.0), 0),
        (Continuation(time_step=99.0), 30),
    ],
)
def test_rows_are_cut_and_the_rest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, plan: Continuation, kept: int
) -> None:
    monkeypatch.setattr(file_content, "CHUNK_BYTES", piece)
    opening: Any = SimpleNamespace(root=str(tmp_path), primary=True)
    for name, encoder in TABLES.items():
        output = left_behind(tmp_path, "log", name, encoder, ROWS)
        path = tmp_path / "log" / name
        whole = path.read_bytes()
        path.write_bytes(whole + b'"torn')
        continue_outputs(opening, [output], plan)
        assert output.encoder.rows == kept
        assert steps_of(whole[: output.size], output.encoder) == list(STEPS)[:kept]
        beyond = (tmp_path / "log" / "abandoned-1" / name).read_bytes()
        assert beyond.endswith(whole[output.size :] + b'"torn')
        assert steps_of(beyond.removesuffix(b'"torn'), output.encoder) == list(STEPS)[kept:]


@pytest.mark.parametrize("piece", [1, 50, 1 << 20])
@pytest.mark.parametrize(("time_step", "kept"), [(10.0, 11), (0.0, 1), (99.0, 30)])
def test_events_are_cut_before_a_later_time_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, time_step: float, kept: int
) -> None:
    monkeypatch.setattr(file_content, "CHUNK_BYTES", piece)
    earlier = left_behind(tmp_path, "log/tb", EVENTS, Events, ROWS)
    path = tmp_path / "log" / "tb" / EVENTS
    whole = path.read_bytes()
    left_behind(tmp_path, "other", EVENTS, Events, ROWS[:kept])
    new = Output("tb", earlier.root, "log/tb", "events.out.tfevents.9.h.2.v", Events, Events())
    opening: Any = SimpleNamespace(root=str(tmp_path), primary=True)
    continue_outputs(opening, [new], Continuation(time_step=time_step))
    assert path.read_bytes() == (tmp_path / "other" / EVENTS).read_bytes()
    assert whole.startswith(path.read_bytes())


def test_a_damaged_record_ends_what_is_cut(tmp_path: Path) -> None:
    left_behind(tmp_path, "log/tb", EVENTS, Events, ROWS)
    path = tmp_path / "log" / "tb" / EVENTS
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 4] ^= 255
    path.write_bytes(damaged)
    new = Output("tb", str(tmp_path), "log/tb", "events.out.tfevents.9.h.2.v", Events, Events())
    opening: Any = SimpleNamespace(root=str(tmp_path), primary=True)
    continue_outputs(opening, [new], Continuation(time_step=20.0))
    assert path.read_bytes() == damaged


@pytest.mark.slow
@pytest.mark.parametrize("plan", [Continuation(rows=3), Continuation(time_step=3.0)])
def test_a_large_file_is_not_read_into_memory(tmp_path: Path, plan: Continuation) -> None:
    rows = [{"x": number, "note": "y" * 4000} for number in range(8000)]
    opening: Any = SimpleNamespace(root=str(tmp_path), primary=True)
    for name, encoder in TABLES.items():
        output = left_behind(tmp_path, "log", name, encoder, rows)
        tracemalloc.start()
        try:
            continue_outputs(opening, [output], plan)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (tmp_path / "log" / "abandoned-1" / name).stat().st_size > 30 << 20
        assert most < 8 * file_content.CHUNK_BYTES
