from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from rla_client.config.schema import SamplesConfig
from rla_client.contract.errors import ArgumentError
from rla_client.contract.spool.protocol import unpack
from rla_client.samples.sample_chunks import CHUNK_BYTES, MAX_TOLD, SampleChunks


def _taken(chunks: SampleChunks, samples: object, step: float = 1, group: object = None) -> list[Any]:
    found = chunks.chunks(samples, name="train", step=step, timestamp=2.0, group=group, withheld=None)
    return [unpack(chunk.payload) for chunk in found]


def test_a_call_is_one_record_or_as_many_as_its_size_asks_for() -> None:
    ((name, step, timestamp, left_out, rows),) = _taken(SampleChunks(SamplesConfig()), [{"a": 1}])
    assert (name, step, timestamp, left_out, [unpack(row) for row in rows]) == (
        "train",
        1,
        2.0,
        0,
        [{"a": 1}],
    )
    found = _taken(SampleChunks(SamplesConfig()), [{"a": "x" * 90_000}] * 100)
    assert len(found) == 3
    assert all(sum(map(len, rows)) <= CHUNK_BYTES for *_, rows in found)
    assert sum(len(rows) for *_, rows in found) == 100


def test_the_room_of_a_step_is_shared_by_its_calls() -> None:
    chunks = SampleChunks(SamplesConfig(step_max_rows=10))
    rows = [{"prompt": str(n)} for n in range(8)]
    assert [len(kept) for *_, kept in _taken(chunks, rows)] == [8]
    ((*_, left_out, kept),) = _taken(chunks, rows)
    assert (left_out, len(kept)) == (6, 2)
    ((*_, left_out, kept),) = _taken(chunks, rows)
    assert (left_out, kept) == (8, [])
    assert [len(kept) for *_, kept in _taken(chunks, rows, step=2)] == [8]


def test_steps_that_come_in_turn_have_one_room_each() -> None:
    chunks = SampleChunks(SamplesConfig(step_max_rows=10))
    rows = [{"prompt": str(n)} for n in range(8)]
    counts = dict.fromkeys((1, 2), 0)
    for step in (1, 2, 1, 2, 1, 2):
        counts[step] += sum(len(kept) for *_, kept in _taken(chunks, rows, step=step))
    assert counts == {1: 10, 2: 10}


def test_most_of_many_rows_are_chosen_without_being_looked_at() -> None:
    looks = []

    class Costly:
        def model_dump(self) -> str:
            looks.append(self)
            return "x"

    chunks = SampleChunks(SamplesConfig(step_max_rows=100))
    rows = [{"prompt": n // 10, "reward": n, "seen": Costly()} for n in range(2000)]
    ((*_, left_out, kept),) = _taken(chunks, rows)
    assert (left_out, len(kept), len(looks)) == (1900, 100, 100)
    found = [unpack(row) for row in kept]
    groups = Counter(row["prompt"] for row in found)
    assert sum(count == 10 for count in groups.values()) == 7
    assert {0, 1999} <= {row["reward"] for row in found}


def test_a_run_has_an_end() -> None:
    chunks = SampleChunks(SamplesConfig(run_max_bytes=1000))
    counts = [len(kept) for step in range(9) for *_, kept in _taken(chunks, [{"a": "x" * 290}], step)]
    assert sum(counts) == 3


def test_groups_are_a_column_or_a_value_a_row() -> None:
    rows = [{"uid": 5}, {"uid": 6}]
    chunks = SampleChunks(SamplesConfig())
    for group in ("uid", [5, 6]):
        ((*_, kept),) = _taken(chunks, rows, group=group)
        assert [unpack(row)["group"] for row in kept] == ["5", "6"]
    with pytest.raises(ArgumentError, match="3 values for 2 samples"):
        _taken(chunks, rows, group=[1, 2, 3])


def test_columns_that_are_left_out_are_untold_once_and_not_without_end() -> None:
    chunks = SampleChunks(SamplesConfig())
    assert chunks.untold({"b_ids", "a_ids"}) == ["a_ids", "b_ids"]
    assert chunks.untold({"b_ids", "c_ids"}) == ["c_ids"]
    assert sum(len(chunks.untold({f"{n}_ids"})) for n in range(2 * MAX_TOLD)) == MAX_TOLD - 3
