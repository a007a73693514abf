"""Parameters in variant.json."""

from __future__ import annotations

import collections
import enum
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rla_client.launcher.launch_parameters import described, differs, fits, recorded_value
from rla_client.stream.param_values import plain_hyper_param


def test_recorded_parameters_in_the_manner_of_the_launchers_own() -> None:
    partial = functools.partial(int, "1")
    own: dict[str, Any] = {"fn": len, "sizes": (1, [2, len]), "deep": {"act": partial, "lr": 0.5}, "t": None}
    recorded: Any = json.loads(json.dumps(plain_hyper_param(own)))
    assert {key: recorded_value(value, recorded[key]) for key, value in own.items()} == own
    recorded["sizes"][0], recorded["deep"]["lr"], recorded["t"] = 7, 0.25, 3.5
    found = {key: recorded_value(value, recorded[key]) for key, value in own.items()}
    assert found == {"fn": len, "sizes": (7, [2, len]), "deep": {"act": partial, "lr": 0.25}, "t": 3.5}
    assert recorded_value({1: "a"}, {"1": "b", "2": "c"}) == {1: "b", 2: "c"}
    assert recorded_value(Path("a"), "b") == Path("b")
    array = recorded_value(np.arange(3.0), [4, 5, 6])
    assert isinstance(array, np.ndarray)
    assert array.tolist() == [4.0, 5.0, 6.0]
    assert array.dtype == np.float64
    array = recorded_value(np.ones((1, 1)), 2.0)
    assert isinstance(array, np.ndarray)
    assert array.shape == (1, 1)
    assert type(recorded_value(np.float32(0.5), 0.25)) is np.float32
    assert getattr(recorded_value(lambda: 1, "<function at 0x1>"), "__name__", "") == "<lambda>"
    assert fits({"f": lambda: 1, "seed": 1}, {"f": plain_hyper_param(lambda: 2), "seed": 2})
    assert fits({"x": [float("nan")]}, {"x": [float("nan")]})
    assert not fits({"f": len}, {"f": "<built-in function max>"})
    assert not fits({"seed": 1}, {"seed": 1, "more": 2})


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Mode(str, enum.Enum):
    FAST = "fast"
    EXACT = "exact"


def test_keys_of_every_kind_come_back() -> None:
    plain = object()
    own = {len: 1, Client: 2, Colour.RED: 3, (len, 1): 4, plain: 5, object(): 6, 7: 7, "7": 8, None: 9}
    recorded = json.loads(json.dumps({"heads": described(own)}, sort_keys=True))["heads"]
    assert "0x" not in json.dumps(recorded)
    assert len(recorded) == len(own)
    assert recorded_value(own, recorded) is own
    recorded["7"] = recorded["<object object>"] = recorded["RED"] = -1
    found = recorded_value(own, recorded)
    assert found == {**own, 7: -1, plain: -1, Colour.RED: -1}
    assert list(found) == list(own)
    assert recorded_value({Colour.RED: 1}, {"BLUE": 2}) == {Colour.BLUE: 2}
    for lost in ({"GREEN": 2}, {"max": 2}):
        kept: dict[Any, int] = {Colour.RED: 1} if "GREEN" in lost else {len: 1}
        assert recorded_value(kept, lost) is kept
    assert recorded_value({"a": 1}, {"a": 1, "b": described(len)}) == {"a": 1}
    assert recorded_value([1], [1, described(len)]) == [1]
    ordered = recorded_value(collections.OrderedDict(b=1, a=2), {"a": 3, "b": 4})
    assert ordered == collections.OrderedDict(b=4, a=3)
    counts = recorded_value(collections.defaultdict(list, a=[1]), {"a": [2]})
    assert isinstance(counts, collections.defaultdict)
    assert (counts["a"], counts["b"]) == ([2], [])


def test_numbers_and_texts_of_the_launchers_own_classes_come_back() -> None:
    assert recorded_value(Size.SMALL, described(Size.LARGE)) is Size.LARGE
    assert recorded_value(Mode.FAST, described(Mode.EXACT)) is Mode.EXACT
    assert type(recorded_value(np.str_("a"), "b")) is np.str_
    assert recorded_value(Size.SMALL, 7) == 7
    assert recorded_value(Size.SMALL, None) is None
    assert recorded_value(len, None) is None


def test_arrays_of_objects_are_described_one_by_one() -> None:
    array = np.array([len, Client, None], dtype=object)
    shown = [{"$function": "builtins.len"}, {"$class": f"{__name__}.Client"}, None]
    assert described({"a": array, "b": array.reshape(1, 3), "c": np.array(len, dtype=object)}) == {
        "a": shown, "b": [shown], "c": shown[0]
    }  # fmt: skip
    assert "0x" not in described(np.full(1 << 18, object()))


class Client:
    def __init__(self) -> None:
        self.api_key = "k-12345678"
        self.size = np.float32(0.5)
        self.me = self


def test_objects_are_described_as_in_garage_and_without_addresses() -> None:
    here = __name__
    found = described(
        {
            "kind": Client, "fn": json.dumps, "lam": [lambda: 1], "member": {"c": Colour.RED},
            "client": Client(), "part": functools.partial(int, "1"), "bare": object(),
            "path": Path("a"), "array": np.arange(2),
        }
    )  # fmt: skip
    assert found["kind"] == {"$class": f"{here}.Client"}
    assert found["fn"] == {"$function": "json.dumps"}
    assert list(found["lam"][0]) == ["$function"]
    assert found["member"] == {"c": {"$enum": f"{here}.Colour.RED"}}
    assert found["client"] == {
        "$typename": f"{here}.Client", "api_key": "k-12345678", "size": 0.5, "me": "<cycle>"
    }  # fmt: skip
    assert found["bare"] == {"$typename": "builtins.object"}
    assert (found["path"], found["array"]) == ("a", [0, 1])
    assert "0x" not in json.dumps(found)
    assert recorded_value(Colour.RED, {"$enum": f"{here}.Colour.BLUE"}) is Colour.BLUE
    assert recorded_value(Colour.RED, {"$enum": "other.Colour.BLUE"}) is Colour.RED
    client = Client()
    assert recorded_value(client, found["client"]) is client
    assert not differs(client, {**found["client"], "api_key": "<hidden>"})
    assert differs(client, {**found["client"], "size": 1.5})


@pytest.mark.slow
def test_what_holds_very_much_is_described_in_short() -> None:
    many = [Client() for _ in range(1000)]
    text = json.dumps(described({"many": many, "arrays": [np.ones(60_000) for _ in range(20)]}))
    assert len(text) < 2_000_000
    assert "0x" not in text
