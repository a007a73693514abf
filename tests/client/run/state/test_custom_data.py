"""Custom data as plain data beside arrays."""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from rla_client.contract.errors import ArgumentError
from rla_client.run.parameters import parameter_file
from rla_client.run.state import custom_data
from rla_client.run.state.archive import encode_archive, load_custom_data, pack_arrays, write_archive
from rla_client.run.state.custom_data import (
    join_arrays,
    open_own,
    register_custom_type,
    split_arrays,
    split_custom,
    unopened,
)

torch = pytest.importorskip("torch", reason="needs PyTorch")


def round_trip(custom: dict[str, Any], folder: Path) -> dict[str, Any]:
    plain, parts = split_custom(custom)
    text, tensors = encode_archive({"index": "x"}, plain), pack_arrays(parts)
    path = folder / "run.json"
    write_archive(str(path), text, tensors)
    return load_custom_data(str(path), json.loads(path.read_text())["custom_data"])


def test_plain_arrays_and_deques_come_back(tmp_path: Path) -> None:
    custom: dict[str, Any] = {
        "list": [1, 2.5, "x", None, True],
        "deque": deque([1, 2], maxlen=3),
        "numpy": np.arange(6, dtype=np.float64).reshape(2, 3),
        "nested": {"t": torch.ones(2, dtype=torch.bfloat16), "scalar": np.float32(0.5)},
    }
    found = round_trip(custom, tmp_path)
    assert found["list"] == custom["list"]
    assert found["deque"] == custom["deque"]
    assert found["deque"].maxlen == 3
    assert np.array_equal(found["numpy"], custom["numpy"])
    assert found["numpy"].dtype == np.float64
    nested = found["nested"]
    assert isinstance(nested, dict)
    assert torch.equal(nested["t"], torch.ones(2, dtype=torch.bfloat16))
    assert nested["scalar"] == 0.5


class Own:
    """A class of a user's script."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


def test_any_object_that_pickles_comes_back_where_its_file_is_trusted(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.25)
    custom: dict[str, Any] = {
        "optimizer": optimizer,
        "deep": {"scheduler": [torch.optim.lr_scheduler.StepLR(optimizer, 3)], "n": 3},
        "arguments": argparse.Namespace(lr=1),
        "random": np.random.RandomState(3),
        "path": Path("a/b"),
        "names": np.array(["a", "b"]),
        "own": (Own(5), 1),
        "square": lambda x: x * x,
        "dtype": torch.float16,
    }
    found = round_trip(custom, tmp_path)
    assert all(unopened(found[key]) is not None for key in custom), "reading runs nothing"
    assert found["deep"]["n"] == 3
    found = open_own(found, None)
    assert found["optimizer"].param_groups[0]["lr"] == 0.25
    assert found["deep"]["scheduler"][0].step_size == 3
    assert (found["arguments"], found["path"], found["own"]) == (
        custom["arguments"], custom["path"], custom["own"],
    )  # fmt: skip
    assert found["random"].rand() == custom["random"].rand()
    assert found["names"].tolist() == ["a", "b"]
    assert (found["square"](3), found["dtype"]) == (9, torch.float16)


def test_what_does_not_pickle_is_left_out_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    endless: list[Any] = [1]
    endless.append(endless)
    custom = {"mixed": {"lock": threading.Lock(), "n": 1}, "good": np.ones(2), "endless": endless}
    for _ in range(3):
        found = open_own(round_trip(custom, tmp_path), None)
    assert found["mixed"] == {"lock": None, "n": 1}
    assert found["good"].tolist() == [1.0, 1.0]
    assert found["endless"][1] is found["endless"]
    assert len(warned) == 1
    assert "'mixed/lock' is a lock, which cannot be pickled" in warned[0]
    with pytest.raises(ArgumentError, match="cannot be pickled"):
        split_arrays([threading.Lock()], {}, "x")


class UnspokenError(Exception):
    """Refuses to say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("not that either")


class Silent:
    """Does not pickle."""

    def __reduce__(self) -> str:
        raise UnspokenError


def test_a_tensor_without_data_is_left_out_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    lazy = torch.nn.LazyLinear(2).weight
    custom = {"net": {"meta": torch.empty(2, device="meta"), "w": torch.ones(2)}, "lazy": lazy}
    found = open_own(round_trip(custom, tmp_path), None)
    assert found["net"]["meta"] is found["lazy"] is None
    assert found["net"]["w"].tolist() == [1.0, 1.0]
    assert len(warned) == 2
    assert "'net/meta' is a tensor without data" in warned[0]
    with pytest.raises(ArgumentError, match="without data"):
        split_arrays([torch.empty(2, device="meta")], {}, "x")


class Faulty(Mapping[str, int]):
    """As a configuration with an interpolation that cannot be resolved."""

    def __getitem__(self, key: str) -> int:
        raise RuntimeError("no such interpolation")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


class SilentMapping(Faulty):
    """Cannot be taken apart."""

    def __getitem__(self, key: str) -> int:
        raise UnspokenError


def test_an_object_whose_error_has_no_words_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    custom = {"silent": Silent(), "mapping": SilentMapping(), "good": 1}
    assert round_trip(custom, tmp_path) == {"silent": None, "mapping": None, "good": 1}
    assert len(warned) == 2
    assert all("UnspokenError: cannot be shown" in text for text in warned)


def test_what_the_users_code_refuses_is_left_out_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    monkeypatch.setattr(custom_data, "_types", {})
    register_custom_type(Own, lambda _: 1 // 0, Own)
    for _ in range(2):
        found = round_trip({"own": [np.ones(1), Own(1)], "map": Faulty(), "good": np.ones(2)}, tmp_path)
        assert (found["own"], found["map"], found["good"].tolist()) == (None, None, [1.0, 1.0])
    assert [text.split("(")[1].split(":")[0] for text in warned] == ["ZeroDivisionError", "RuntimeError"]


def test_a_list_that_grows_is_warned_of_once_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    monkeypatch.setattr(custom_data, "MAX_KNOWN", 2)
    locks: list[Any] = []
    for run in ("one", "two"):
        for _ in range(3):
            locks.append(threading.Lock())
            split_custom({"locks": locks}, run)
    assert len(warned) == 2
    split_custom({str(number): threading.Lock() for number in range(10)})
    assert len(custom_data._told) == 2


def test_many_bytes_of_objects_are_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    monkeypatch.setattr(custom_data, "MANY_PICKLED_BYTES", 3 << 20)
    for size in (1, 2, 2):
        split_custom({"a": Own(b"x" * (size << 20)), "b": Own(b"x" * (size << 20))})
    assert [text[:45] for text in warned] == ["objects in the custom data take 4 MiB, and ea"]


def test_objects_in_sets_and_as_keys_come_back(tmp_path: Path) -> None:
    path = PurePosixPath("/a")
    custom = {"set": {path, 1}, "frozen": frozenset({path}), "keys": {path: Own(2), ("t", path): 3}}
    found = round_trip(custom, tmp_path)
    assert all(unopened(value) is not None for value in found.values())
    again = round_trip(custom, tmp_path)
    assert open_own(again, None) == custom
    assert all(unopened(value) is None for value in again.values())
    closed = open_own(found, "it is another's")
    assert all("it is another's" in repr(unopened(value)) for value in closed.values())


def test_what_was_not_opened_is_not_kept_as_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else code of a foreign file would count as this run's own from its next archive on."""
    warned: list[str] = []
    monkeypatch.setattr(custom_data, "warn", warned.append)
    monkeypatch.setattr(custom_data, "_told", {})
    found = open_own(round_trip({"own": Own(5)}, tmp_path), "it came from another machine")
    assert "came from another machine" in repr(found["own"])
    assert round_trip(found, tmp_path) == {"own": None}
    assert "was not loaded (it came from another machine)" in warned[0]


def test_a_class_that_is_gone_leaves_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = round_trip({"own": Own(5), "n": 1}, tmp_path)
    monkeypatch.delattr(sys.modules[__name__], "Own")
    found = open_own(found, None)
    assert found["n"] == 1
    assert "AttributeError" in found["own"].problem


class Range:
    def __init__(self, low: float, high: Any) -> None:
        self.low, self.high = low, high


def test_tuples_sets_keys_and_registered_objects_come_back(tmp_path: Path) -> None:
    """random.getstate() is a tuple that random.setstate takes; epochs are ints."""
    custom: dict[str, Any] = {
        "state": random.getstate(),
        "epochs": {1: 0.5, (2, "b"): [1], None: 2},
        "set": {1, 2},
        "sets": {frozenset({1, 2}): 3, (frozenset({4}), 5): 6},
        "nested": {frozenset({1}), frozenset({2})},
        "bytes": b"\x00\xff",
        "marked": {"__rla_array__": "mine"},
        "a/b": np.ones(1),
        "a": {"b": np.zeros(1)},
    }
    found = round_trip(custom, tmp_path)
    for key in ("state", "epochs", "set", "sets", "nested", "bytes", "marked"):
        assert found[key] == custom[key], key
    random.setstate(found["state"])
    assert (found["a/b"].tolist(), found["a"]["b"].tolist()) == ([1.0], [0.0])


def test_a_registered_pair_of_functions_keeps_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_data, "_types", {})
    register_custom_type(Range, lambda one: [one.low, one.high], lambda plain: Range(*plain), "range")
    found = round_trip({"one": [Range(1.0, np.ones(2))]}, tmp_path)["one"][0]
    assert (found.low, found.high.tolist()) == (1.0, [1.0, 1.0])
    monkeypatch.setattr(custom_data, "_types", {})
    text = (tmp_path / "run.json").read_text()
    unknown = load_custom_data(str(tmp_path / "run.json"), json.loads(text)["custom_data"])["one"][0]
    assert unknown[0] == 1.0, "who does not know the type gets its plain data"


def test_a_registered_function_that_fails_leaves_the_plain_data(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A class whose constructor has changed since: the next save must not write None over its data."""
    monkeypatch.setattr(custom_data, "_types", {})
    register_custom_type(Range, lambda one: {"low": one.low}, lambda plain: Range(**plain), "range")
    assert join_arrays(split_arrays([Range(1.0, 2.0)], {}, "x"), {}) == [{"low": 1.0}]
    assert "from_plain failed: TypeError" in caplog.text


def test_one_name_means_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_data, "_types", {})
    again = type("Range", (), {"__module__": Range.__module__})
    other = type("Range", (), {"__module__": "elsewhere"})
    register_custom_type(Range, vars, lambda plain: ("first", plain))
    register_custom_type(again, vars, lambda plain: ("again", plain))
    with pytest.raises(ArgumentError, match=r"elsewhere\.Range another name"):
        register_custom_type(other, vars, lambda plain: ("other", plain))
    register_custom_type(other, lambda _: 1, lambda plain: ("other", plain), "other")
    values = [split_arrays(kind(), {}, "x") for kind in (again, other)]
    assert join_arrays(values, {}) == [("again", {}), ("other", 1)]


def test_what_contains_itself_is_refused_and_foreign_marks_harm_nothing() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ArgumentError, match="contains itself"):
        split_arrays(endless, {}, "x")
    for mark in ("array", "deque", "tuple", "set", "frozenset", "bytes", "items", "object"):
        contents: tuple[object, ...] = (None, 5, [[[]]], {"a": 1}, "x")
        for content in contents:
            join_arrays({f"__rla_{mark}__": content}, {})


def test_integers_of_any_length_are_kept() -> None:
    long = 10**5000
    assert parameter_file.as_stored({"a": long, "b": {"c": [long], long: 1}, "d": 10**400}) == {
        "a": hex(long),
        "b": {"c": [hex(long)], hex(long): 1},
        "d": 10**400,
    }
    arrays: dict[str, Any] = {}
    plain = split_arrays({"n": [long, -long, 3]}, arrays, "")
    json.dumps(plain)
    assert join_arrays(plain, arrays) == {"n": [long, -long, 3]}
