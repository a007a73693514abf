from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path

import pytest

from rla_agent.model.records import Record, Samples
from rla_agent.outputs.samples_encoder import SamplesEncoder
from rla_client.contract.sample_members import Index, group_of, member_ends, member_head, read_index


def _written(encoder: SamplesEncoder, *rows: dict[str, object], left_out: int = 0) -> bytes:
    return encoder.encode([Record(1, Samples("train", 3, 1.5, left_out, list(rows)))])[0]


def _lines(data: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress(data).splitlines()]


def _indices(data: bytes) -> list[Index]:
    ends = list(member_ends(data))
    members = [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    found = []
    for member in members:
        head = member_head(member)
        assert head is not None
        found.append(read_index(member, head))
    return found


def test_each_row_says_where_it_is_from() -> None:
    encoder = SamplesEncoder("rollout-3")
    data = _written(encoder, {"prompt": "p", "reward": 1.0, "id": "mine"}, {"prompt": "q", "group": "g"})
    first, second = _lines(data)
    assert first == {
        "id": "rollout-3-0", "step": 3, "timestamp": 1.5, "name": "train", "role": "rollout-3", "prompt": "p",
        "reward": 1.0, "_id": "mine", "group": group_of("p"),
    }  # fmt: skip
    assert (second["id"], second["group"]) == ("rollout-3-1", "g")
    assert encoder.rows == 2


def test_the_index_has_numbers_short_texts_and_the_begin_of_long_ones() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x" * 90}]
    row = {"prompt": "p" * 100, "completion": messages, "reward": -1, "rewards": {"format": 0.5}, "ok": True}
    (index,) = _indices(_written(SamplesEncoder(""), row, left_out=9))
    assert index.left_out == 9
    assert {name: values[0] for name, values in index.columns.items()} == {
        "id": "0", "prompt": "p" * 80, "prompt_chars": 100, "completion": "x" * 80, "completion_chars": 90,
        "reward": -1, "rewards/format": 0.5, "ok": True, "group": group_of("p" * 100),
    }  # fmt: skip


def test_a_completion_that_only_calls_a_tool_is_told_by_its_name() -> None:
    for call in ({"function": {"name": "calc", "arguments": "6*7"}}, {"name": "calc", "arguments": "6*7"}):
        talk = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        (index,) = _indices(_written(SamplesEncoder(""), {"completion": talk}))
        assert index.columns["completion"] == ["calls calc"]


def test_prompt_and_completion_are_measured_however_short() -> None:
    (index,) = _indices(_written(SamplesEncoder(""), {"prompt": "four", "finish": "stop"}))
    assert index.columns["prompt_chars"] == [4]
    assert "finish_chars" not in index.columns


def test_what_json_has_no_number_for_is_null_there_and_itself_in_the_index() -> None:
    data = _written(SamplesEncoder(""), {"reward": math.nan, "nested": [math.inf, {"a": -math.inf}]})
    assert _lines(data)[0]["reward"] is None
    assert _lines(data)[0]["nested"] == [None, {"a": None}]
    assert math.isnan(_indices(data)[0].columns["reward"][0])


def test_many_and_large_rows_are_several_members_and_no_header_overflows() -> None:
    many: dict[str, object] = {f"column {number} {'x' * 80}": number for number in range(300)}
    long: dict[str, object] = {"text": "y" * 400_000}
    data = _written(SamplesEncoder(""), *[many] * 30, *[long] * 5)
    indices = _indices(data)
    assert sum(len(index.columns["id"]) for index in indices) == 35
    assert len(indices) >= 4
    assert len(_lines(data)) == 35
    assert _lines(data)[0].keys() >= many.keys()


def test_a_group_that_is_a_list_is_text_that_can_be_asked_for() -> None:
    data = _written(SamplesEncoder(""), {"prompt": "p", "group": ["é", 2]}, {"prompt": "p", "group": 7})
    assert [row["group"] for row in _lines(data)] == ['["é", 2]', 7]
    assert _indices(data)[0].columns["group"] == ['["é", 2]', 7]


def test_that_all_were_left_out_is_told_too() -> None:
    (index,) = _indices(_written(SamplesEncoder(""), left_out=4))
    assert (index.left_out, index.columns) == (4, {})


def test_pandas_and_duckdb_read_the_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "samples.jsonl.gz"
    encoder = SamplesEncoder("")
    path.write_bytes(b"".join(_written(encoder, {"reward": float(n), "prompt": "ü"}) for n in range(3)))
    assert list(pandas.read_json(path, lines=True)["reward"]) == [0.0, 1.0, 2.0]
    duckdb = pytest.importorskip("duckdb")
    assert duckdb.sql(f"SELECT sum(reward) FROM read_json('{path}')").fetchall() == [(3.0,)]


def test_a_row_of_any_width_fits_a_header() -> None:
    chance = random.Random(0)

    def text(count: int) -> str:
        return "".join(chr(chance.randrange(0x10000, 0x10FFFF)) for _ in range(count))

    wide: dict[str, object] = {text(100): text(500) for _ in range(300)}
    data = _written(SamplesEncoder(""), *[wide] * 40, {"rewards": {text(99): 0.5 for _ in range(3000)}})
    assert len(_lines(data)) == 41
    assert sum(len(index.columns["id"]) for index in _indices(data)) == 41
