"""Arrays in a `.pt` file that is written and read without torch, and that torch reads."""

from __future__ import annotations

import io
import json
import pickle
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.checkpoint.array_file import decode_arrays, encode_arrays, torch_array
from rla_client.checkpoint.torch_names import NUMPY_STORAGE_CLASSES
from rla_client.run.state.archive import (
    encode_archive,
    load_custom_data,
    pack_arrays,
    unpack_arrays,
    write_archive,
)
from rla_client.run.state.custom_data import join_arrays, split_custom

torch = pytest.importorskip("torch", reason="needs PyTorch")

RANDOM = np.random.default_rng(0)
WITHOUT_TORCH = """
import importlib.abc, sys
class No(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, No())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
"""


def arrays() -> dict[str, np.ndarray]:
    made = {name: (RANDOM.random((2, 3)) * 100).astype(name) for name in NUMPY_STORAGE_CLASSES}
    made["empty"] = np.zeros((0, 4), np.float32)
    made["scalar"] = np.array(2.5)
    made["view"] = np.arange(12.0).reshape(3, 4)[::2, ::-1]
    return made


def test_torch_reads_what_is_written_without_it() -> None:
    given = {key: torch_array(value) for key, value in arrays().items()}
    read = torch.load(io.BytesIO(encode_arrays(given)), weights_only=True)
    assert {key: value.numpy().tobytes() for key, value in read.items()} == {
        key: value.tobytes() for key, value in given.items()
    }
    assert {key: tuple(value.shape) for key, value in read.items()} == {
        key: value.shape for key, value in given.items()
    }


def test_it_is_read_without_torch_also_when_torch_wrote_it() -> None:
    given = arrays()
    written = encode_arrays({key: torch_array(value) for key, value in given.items()})
    buffer = io.BytesIO()
    torch.save({key: torch.as_tensor(torch_array(value)) for key, value in given.items()}, buffer)
    for data in (written, buffer.getvalue()):
        for key, value in decode_arrays(data).items():
            assert value.dtype == given[key].dtype, key
            assert value.tobytes() == np.ascontiguousarray(given[key]).tobytes(), key


def test_other_types_become_the_nearest_or_come_back_as_they_were(tmp_path: Path) -> None:
    custom = {
        "u16": np.array([1, 65535], np.uint16),
        "u64": np.array([1, 2**64 - 1], np.uint64),
        "big": np.arange(3, dtype=">f8"),
        "long": np.ones(2, np.longdouble),
    }
    path = tmp_path / "a.json"
    plain, parts = split_custom(custom)
    text, tensors = encode_archive({}, plain), pack_arrays(parts)
    write_archive(str(path), text, tensors)
    found = load_custom_data(str(path), json.loads(text)["custom_data"])
    for key, value in custom.items():
        assert np.array_equal(found[key], np.asarray(value)), key
    assert found["u64"].dtype == np.uint64
    assert (
        join_arrays(json.loads(text)["custom_data"], decode_arrays(tensors or b""))["u16"].dtype == np.uint16
    )


def test_a_file_that_names_anything_else_is_refused() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("evil",)

    buffer = io.BytesIO()
    torch.save({"a": Evil()}, buffer)
    for data in (buffer.getvalue(), b"", b"PK", pickle.dumps({"a": 1})):
        with pytest.raises(ValueError, match="file of arrays"):
            decode_arrays(data)


def test_damage_anywhere_is_one_kind_of_error() -> None:
    data = encode_arrays({"a": np.arange(5.0), "b": np.zeros((2, 3), "int32")})
    chance = random.Random(1)
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        with suppress(ValueError):
            decode_arrays(bytes(broken))


def test_custom_data_works_where_torch_is_not_installed(tmp_path: Path) -> None:
    code = WITHOUT_TORCH + (
        "import numpy as np, sys\n"
        "from rla_client.run.state.archive import encode_archive, write_archive, load_custom_data\n"
        "from rla_client.run.state.archive import pack_arrays\n"
        "from rla_client.run.state.custom_data import split_custom\n"
        "import json\n"
        "custom = {'a': np.arange(3), 'b': [np.ones(2, np.uint16)], 'c': slice(3)}\n"
        "plain, parts = split_custom(custom)\n"
        "text, tensors = encode_archive({}, plain), pack_arrays(parts)\n"
        "write_archive(sys.argv[1], text, tensors)\n"
        "found = load_custom_data(sys.argv[1], json.loads(text)['custom_data'])\n"
        "assert found['a'].tolist() == [0, 1, 2] and found['b'][0].dtype == np.uint16, found\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.json")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert unpack_arrays((tmp_path / "a.pt").read_bytes())["/a"].tolist() == [0, 1, 2]
