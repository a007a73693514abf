"""What every append-only sink keeps to, whatever it writes: one body for all of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.spooled import bare_opening

from rla_agent.model.frame_decoder import decode
from rla_agent.model.records import Close, Event, Mark, Record, Row, Samples, Text
from rla_agent.outputs.csv_encoder import CsvEncoder, new_columns, widened
from rla_agent.outputs.encoder import Encoder
from rla_agent.outputs.file_content import FileContent
from rla_agent.outputs.formats import FORMATS, ends_of
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.outputs.text_encoder import TextEncoder
from rla_client.contract.layout import OUTPUT_NAMES, SAMPLES, SAMPLES_FILE, SINKS
from rla_client.contract.spool.protocol import FrameKind, pack

MAKERS: dict[str, tuple[str, Callable[[], Encoder]]] = {
    name: (name if name in SINKS else "", partial(form.new, bare_opening())) for name, form in FORMATS.items()
}

keys = st.sampled_from(["loss", "perf/return", "ü", "a,b", 'q"', "=cmd", "new\nline", "time-step"])
numbers = st.one_of(st.floats(), st.integers(-(1 << 70), 1 << 70), st.booleans())
plain = st.one_of(
    numbers, st.none(), st.text(max_size=8), st.lists(st.one_of(numbers, st.none()), max_size=3)
)
excluded = st.one_of(st.none(), st.dictionaries(keys, st.lists(st.sampled_from(SINKS)), max_size=3))
rows = st.builds(
    Row,
    st.one_of(st.integers(-5, 1 << 65), st.floats()), st.floats(0, 2e9), st.dictionaries(keys, plain, max_size=4), excluded,  # noqa: E501
)  # fmt: skip
samples = st.builds(
    Samples,
    st.text(max_size=4),
    st.one_of(st.integers(-5, 1 << 65), st.floats()),
    st.floats(0, 2e9),
    st.integers(0, 3),
    st.lists(
        st.dictionaries(st.one_of(keys, st.sampled_from(["prompt", "reward", "id"])), plain, max_size=4),
        max_size=4,
    ),
)
others = st.one_of(
    samples,
    st.builds(Text, st.integers(0, 7), st.text(max_size=10).map(lambda text: text + "\n")),
    st.just(Event(b"\x09" + bytes(8))),
    st.just(Mark("hyper_param", {"a": [1]})),
    st.just(Close("finished", "", 1.0)),
)
streams = st.lists(st.one_of(rows, others), max_size=8)


def fresh(contents: list[Any]) -> list[Record]:
    """Records whose values nobody can change: the other sinks and the alerts get the same."""
    copies = [c._replace(values=MappingProxyType(c.values)) if isinstance(c, Row) else c for c in contents]
    return [Record(number, content) for number, content in enumerate(copies)]


def write(encoder: Encoder, data: bytes, records: list[Record]) -> bytes:
    """As an output does: encode, and rewrite wider when the encoder asks for it."""
    while True:
        more, used = encoder.encode(records)
        data += more
        if used == len(records):
            return data
        assert isinstance(encoder, CsvEncoder), "only a CSV may stop"
        late = new_columns(encoder.columns, records[used:])
        assert late
        columns = [*encoder.columns, *late]
        data = b"".join(widened([data], columns, len(late)))
        encoder.set_columns(columns)
        records = records[used:]


every_sink = pytest.mark.parametrize("name", MAKERS)
relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@every_sink
def test_nothing_in_nothing_out(name: str) -> None:
    encoder = MAKERS[name][1]()
    assert encoder.encode([]) == (b"", 0)
    assert encoder.rows == 0


@every_sink
@relaxed
@given(contents=streams, cut=st.integers(0, 8))
def test_bytes_do_not_depend_on_batches_nor_on_restarts(name: str, contents: list[Any], cut: int) -> None:
    make = MAKERS[name][1]
    one = make()
    whole = write(one, one.head(), fresh(contents))
    first = make()
    data = write(first, first.head(), fresh(contents[:cut]))
    second = make()
    second.restore(first.state())
    data = write(second, data, fresh(contents[cut:]))
    if name == "csv":  # columns that come in one batch are sorted row by row all the same
        assert sorted(whole.splitlines()[:1]) == sorted(data.splitlines()[:1])
    assert data == whole
    assert second.rows == one.rows
    assert second.state() == one.state()


@every_sink
@relaxed
@given(contents=streams)
def test_a_state_is_plain_data_and_a_replay_writes_the_same(name: str, contents: list[Any]) -> None:
    import json

    encoder = MAKERS[name][1]()
    write(encoder, b"", fresh(contents[:4]))
    state = json.loads(json.dumps(encoder.state()))
    once = (
        write(encoder, b"", fresh(contents[4:])) if name != "csv" else encoder.encode(fresh(contents[4:]))[0]
    )
    again = MAKERS[name][1]()
    again.restore(state)
    twice = write(again, b"", fresh(contents[4:])) if name != "csv" else again.encode(fresh(contents[4:]))[0]
    assert once == twice


def rows_of(*steps: int, name: str = "") -> list[Record]:
    values = {"a": 1, "text": 'x"\n\r"'}
    if name == SAMPLES:
        return fresh([Samples("train", step, 1.5, 0, [values]) for step in steps])
    return fresh([Row(step, 1.5, values, None) for step in steps])


@every_sink
def test_records_end_where_the_encoder_says(name: str, tmp_path: Path) -> None:
    """At each length of a file: what is gone on behind are whole records, and the rest follows."""
    make = MAKERS[name][1]
    encoder = make()
    head = encoder.head()
    data = head + b"".join(encoder.encode(rows_of(step, name=name))[0] for step in range(3))
    ends = encoder.ends(data)
    file_name = {**OUTPUT_NAMES, SAMPLES: SAMPLES_FILE}.get(name, "events.out.tfevents.1.h")
    assert ends == ends_of(os.fsencode(file_name))(data)
    assert (ends[-1] if ends else 0) == len(data)
    path = tmp_path / "file"
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        with path.open("rb") as file:
            content = FileContent(file.fileno())
            assert encoder.end_of_records(content) <= size
            assert encoder.end_of_records(content) in {0, *ends, data[:size].rfind(b"\n") + 1}
            found = make().whole_part(content)
        if found.size in ends and found.state:
            again = make()
            again.restore(found.state)
            rest = again.encode(rows_of(*range(again.rows, 3), name=name))[0]
            assert data[: found.size] + rest == data


@every_sink
def test_what_was_recorded_before_the_save_stays(name: str, tmp_path: Path) -> None:
    """Where time-steps begin at 0 again, earlier stages are not cut."""
    encoder = MAKERS[name][1]()
    content = encoder.head() + b"".join(encoder.encode(rows_of(step, name=name))[0] for step in (10, 20, 30))
    (tmp_path / "file").write_bytes(content)
    with (tmp_path / "file").open("rb") as file:
        none_later = encoder.kept(FileContent(file.fileno()), None, 5.0, 1e12)
        all_later = encoder.kept(FileContent(file.fileno()), None, 5.0, 0.0)
    if none_later is not None and all_later is not None:
        assert none_later.size == len(content)
        assert all_later.size == len(encoder.head()) or all_later.state["rows"] == 0


@every_sink
@pytest.mark.parametrize(("rows", "time_step"), [(2, None), (None, 20.0), (None, 25.5), (0, None), (9, None)])
def test_what_stays_when_a_run_goes_on_earlier(
    name: str, rows: int | None, time_step: float | None, tmp_path: Path
) -> None:
    make = MAKERS[name][1]
    encoder = make()
    whole = encoder.head() + b"".join(encoder.encode(rows_of(step, name=name))[0] for step in (10, 20, 30))
    (tmp_path / "file").write_bytes(whole)
    with (tmp_path / "file").open("rb") as file:
        kept = encoder.kept(FileContent(file.fileno()), rows, time_step)
    if kept is None:  # texts stay as they are; event files are cut as files
        assert isinstance(encoder, TextEncoder | EventEncoder)
        return
    count = min(3, 2 if rows is None else rows)
    again = make()
    again.restore(kept.state)
    assert again.rows == count
    assert whole[: kept.size] + again.encode(rows_of(*(10, 20, 30)[count:], name=name))[0] == whole


@every_sink
def test_an_excluded_value_stays_out(name: str) -> None:
    sink, make = MAKERS[name]
    row = Row(3, 1.0, {"secret/key": 4.5, "other": 1.0}, {"secret/key": [sink]})
    data, used = make().encode(fresh([row]))
    assert used == 1
    assert b"secret/key" not in data
    if sink:
        assert b"other" in data
        shown, _ = make().encode(fresh([row._replace(excluded=None)]))
        assert b"secret/key" in shown


@every_sink
def test_a_row_of_which_nothing_is_left_writes_nothing(name: str) -> None:
    sink, make = MAKERS[name]
    assert make().encode(fresh([Row(3, 1.0, {"a": 4.5}, {"a": [sink]})])) == (b"", 1)


@pytest.mark.parametrize(
    "payload",
    [
        [1, 1.0, {"a": 1}, {"a": 5}], [1, 1.0, {5: 1}], ["x", 1.0, {}], [1, 1, {}], [1, 1.0, []], [1, 1.0],
        [math.nan, "x", {}, {}], 5, [1, 1.0, {"a": 1}, [1]],
    ],
)  # fmt: skip
def test_what_no_client_writes_never_reaches_a_sink(payload: object) -> None:
    assert decode(FrameKind.ROW, pack(payload)) is None
