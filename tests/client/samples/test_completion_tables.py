from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.samples.completion_tables import TrlTables, known_names, read_parquet, step_of_name, trl_rows


def test_the_reward_columns_of_trl_become_rewards_and_their_sum() -> None:
    rows = [
        {"step": 3, "prompt": "p", "completion": "c", "accuracy": 1.0, "format": 0.5, "advantage": -1.0},
        {"step": 3, "prompt": "p", "completion": "d", "accuracy": math.nan, "format": 0.25, "advantage": 1.0},
    ]
    first, second = trl_rows(rows)
    assert first == {
        "prompt": "p", "completion": "c", "advantage": -1.0, "reward": 1.5,
        "rewards": {"accuracy": 1.0, "format": 0.5},
    }  # fmt: skip
    assert (second["rewards"], second["reward"]) == ({"format": 0.25}, 0.25)
    assert [row["reward"] for row in trl_rows(rows, [2.0, 4.0])] == [4.0, 1.0]
    assert trl_rows([]) == []


def trl_table(step: int, *completions: str) -> list[dict[str, object]]:
    return [
        {"step": step, "prompt": "p", "completion": one, "accuracy": math.nan, "advantage": 0.0}
        for one in completions
    ]


def taken(tables: TrlTables, step: int, *completions: str) -> tuple[list[object], str]:
    rows, name = tables.new_rows(trl_table(step, *completions), step)
    return [row["completion"] for row in rows], name


def test_a_table_of_trl_that_comes_again_has_nothing_new() -> None:
    tables = TrlTables({"num_iterations": 2, "steps_per_generation": 1, "gradient_accumulation_steps": 1})
    assert taken(tables, 1, "a", "b") == (["a", "b"], "train")
    assert taken(tables, 2, "a", "b")[0] == []
    assert taken(tables, 3, "b", "c")[0] == ["b", "c"], "a generation fills the table"


def test_where_each_step_generates_equal_tables_are_two() -> None:
    for parameters in (
        {},
        {"steps_per_generation": 4, "gradient_accumulation_steps": 4},
        {"num_iterations": "2"},
    ):
        tables = TrlTables(parameters)
        assert taken(tables, 1, "a", "a")[0] == ["a", "a"]
        assert taken(tables, 2, "a", "a")[0] == ["a", "a"]


def test_of_a_table_behind_an_evaluation_what_was_evaluated_is_new() -> None:
    tables = TrlTables({})
    assert taken(tables, 4, "a", "b", "c") == (["a", "b", "c"], "train")
    assert taken(tables, 4, "c", "x", "y") == (["x", "y"], "eval")
    assert taken(tables, 4, "c", "x", "y")[0] == [], "the last log of a training"
    assert taken(tables, 5, "d", "e", "f") == (["d", "e", "f"], "train")


def test_a_table_of_trl_is_known_again_without_a_copy_of_its_texts() -> None:
    tables, table = TrlTables({"num_iterations": 2}), trl_table(1, *(f"{n} " * 10_000 for n in range(10, 74)))
    tracemalloc.start()
    try:
        assert len(tables.new_rows(table, 1)[0]) == len(table)
        assert tables.new_rows([dict(row) for row in table], 2)[0] == []
        assert tracemalloc.get_traced_memory()[1] < 100_000 < sum(len(str(row)) for row in table) / 10
    finally:
        tracemalloc.stop()


def test_names_of_other_trainers_become_ours() -> None:
    row = {"input": "p", "output": "c", "score": 0.5, "gts": "t", "acc": 1}
    assert known_names(row) == {"prompt": "p", "completion": "c", "reward": 0.5, "truth": "t", "acc": 1}
    assert known_names({"prompt": "p", "input": "other"}) == {"prompt": "p", "input": "other"}


def test_the_step_is_in_the_name() -> None:
    assert step_of_name(Path("completions_00042.parquet")) == 42
    assert step_of_name(Path("7.jsonl")) == 7
    assert step_of_name(Path("v2/samples.jsonl")) is None


def test_what_is_no_parquet_is_told(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "completions_1.parquet"
    path.write_bytes(b"PAR1 nonsense")
    with pytest.raises(ArgumentError, match="no Parquet"):
        read_parquet(path)
