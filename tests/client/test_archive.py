"""The archive of a manager: plain data, arrays beside it, refusal of what is neither."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch

from rla_client.archive import encode_archive, join_arrays, load_custom_data, split_arrays, write_archive
from rla_client.errors import ArgumentError


def round_trip(custom: dict[str, object], folder: Path) -> dict[str, object]:
    text, tensors = encode_archive({"index": "x"}, custom)
    path = folder / "run.json"
    write_archive(str(path), text, tensors)
    return load_custom_data(str(path), json.loads(path.read_text())["custom_data"])


def test_plain_arrays_and_deques_come_back(tmp_path: Path) -> None:
    custom = {
        "list": [1, 2.5, "x", None, True],
        "deque": deque([1, 2], maxlen=3),
        "numpy": np.arange(6, dtype=np.float64).reshape(2, 3),
        "nested": {"t": torch.ones(2, dtype=torch.bfloat16), "scalar": np.float32(0.5)},
    }
    found = round_trip(custom, tmp_path)
    assert found["list"] == custom["list"]
    assert found["deque"] == custom["deque"]
    assert found["deque"].maxlen == 3  # type: ignore[attr-defined]
    assert np.array_equal(found["numpy"], custom["numpy"])  # type: ignore[arg-type]
    assert found["numpy"].dtype == np.float64  # type: ignore[attr-defined]
    nested = found["nested"]
    assert isinstance(nested, dict)
    assert torch.equal(nested["t"], torch.ones(2, dtype=torch.bfloat16))
    assert nested["scalar"] == 0.5


def test_no_tensor_file_without_arrays(tmp_path: Path) -> None:
    round_trip({"a": 1}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_objects_are_refused_with_the_way_out() -> None:
    with pytest.raises(ArgumentError, match="save_checkpoint"):
        split_arrays({"model": torch.nn.Linear(1, 1)}, {}, "custom")


def test_missing_arrays_become_none() -> None:
    arrays: dict[str, object] = {}
    plain = split_arrays({"a": np.ones(2)}, arrays, "")
    assert join_arrays(plain, {}) == {"a": None}
