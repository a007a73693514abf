from __future__ import annotations

import math
from pathlib import Path

import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.samples.completion_tables import known_names, read_parquet, step_of_name, trl_rows


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
