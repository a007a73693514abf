"""Whatever a client of this uid writes, the agent goes on: odd rows reach every sink without an exception."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rla_agent.model.frame_decoder import decode, parse
from rla_agent.model.records import Row
from rla_agent.outputs.csv_encoder import CsvEncoder, new_columns, row_keys
from rla_agent.outputs.json_encoder import JsonEncoder
from rla_agent.outputs.tensorboard import EventEncoder
from rla_agent.outputs.text_encoder import TextEncoder
from rla_client.contract.spool.protocol import FrameKind, TextTarget, encode_frame, pack

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.binary(max_size=5), inner)
    ),
    max_leaves=8,
)
payloads = st.one_of(
    st.tuples(plain, plain, plain),
    st.tuples(st.integers() | st.floats(), st.floats(), st.dictionaries(st.text(max_size=9), plain)),
    st.tuples(
        st.floats(),
        st.floats(),
        st.dictionaries(st.text(max_size=3), plain),
        st.dictionaries(st.text(max_size=3), plain),
    ),
    plain,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(kind=st.sampled_from(list(FrameKind)), content=payloads)
def test_any_plain_payload_is_taken_or_refused(kind: int, content: Any) -> None:
    data = encode_frame(kind, pack(content))
    batch = parse(data, 1, 0, final=True)
    assert batch.end == len(data)
    assert batch.damaged == (0 if batch.records else len(data))
    for encoder in (EventEncoder(1.0), JsonEncoder(), TextEncoder(TextTarget.LOG, tables=True)):
        encoder.encode(parse(data, 1, 0, final=True).records)
    table = CsvEncoder()
    records = parse(data, 1, 0, final=True).records
    _, used = table.encode(records)
    assert used == len(records)
    for record in records:
        if isinstance(record.content, Row):
            assert new_columns([], records)
            assert row_keys(record.content)


@settings(max_examples=150, deadline=None)
@given(kind=st.integers(0, 255), payload=st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(kind: int, payload: bytes) -> None:
    decode(kind, payload)


@pytest.mark.parametrize(
    "payload",
    [[], [0], [0, 1.0], [0, 1, {}], ["0", 1.0, {}], [0, 1.0, []], [0, 1.0, {}, []], [0, 1.0, {1: 2}]],
)
def test_rows_of_another_shape_are_refused(payload: list[Any]) -> None:
    assert decode(FrameKind.ROW, pack(payload)) is None


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(content=payloads)
def test_the_short_way_of_rows_gives_what_the_long_one_does(content: Any) -> None:
    payload = pack(content)
    frame = encode_frame(FrameKind.ROW, payload)
    found = [record.content for record in parse(frame, 1, 0, final=True).records]
    expected = decode(FrameKind.ROW, payload)
    assert repr(found) == repr([] if expected is None else [expected])


def test_a_batch_knows_whether_it_holds_rows_only() -> None:
    row = encode_frame(FrameKind.ROW, pack([1, 2.0, {"a": 1}]))
    text = encode_frame(FrameKind.TEXT, pack([1, "x"]))
    assert parse(row + row, 1, 0, final=True).only_rows
    assert not parse(row + text + row, 1, 0, final=True).only_rows


@pytest.mark.parametrize("cut", [20, 60, 100])
def test_what_looks_like_a_frame_inside_one_that_is_not_whole_yet_is_none(cut: int) -> None:
    row = encode_frame(FrameKind.ROW, pack([1, 2.0, {"a": 1}]))
    file = encode_frame(FrameKind.FILE, pack(["log", "copy.seg", row * 20]))
    batch = parse(row + file[: len(file) - cut], 1, 0, final=False)
    assert (len(batch.records), batch.end, batch.damaged) == (1, len(row), 0)
    assert len(parse(row + file, 1, 0, final=False).records) == 2
