"""The archive of a manager: its pair of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rla_client.run.state.archive import encode_archive, load_custom_data, pack_arrays, write_archive
from rla_client.run.state.custom_data import join_arrays, split_arrays, split_custom


def round_trip(custom: dict[str, Any], folder: Path) -> dict[str, Any]:
    plain, parts = split_custom(custom)
    text, tensors = encode_archive({"index": "x"}, plain), pack_arrays(parts)
    path = folder / "run.json"
    write_archive(str(path), text, tensors)
    return load_custom_data(str(path), json.loads(path.read_text())["custom_data"])


def test_no_tensor_file_without_arrays(tmp_path: Path) -> None:
    round_trip({"a": 1}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_missing_arrays_become_none() -> None:
    arrays: dict[str, object] = {}
    plain = split_arrays({"a": np.ones(2)}, arrays, "")
    assert join_arrays(plain, {}) == {"a": None}
