from __future__ import annotations

import argparse
import collections
import datetime as dt
import enum
import functools
import json
import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.errors import FrameTooLargeError
from rla_client.contract.spool.protocol import pack, unpack
from rla_client.stream.param_values import plain_hyper_param
from rla_client.stream.values import MAX_INT_BITS, to_plain

torch = pytest.importorskip("torch", reason="needs PyTorch")


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Mode(str, enum.Enum):
    FAST = "fast"


class Shy:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Loud(float):
    def __repr__(self) -> str:
        return "loud"


class Name(str):
    __slots__ = ()


class EagerTensor:
    """As tensorflow's: a dtype, no item(), numpy() for the value."""

    def __init__(self, value: Any) -> None:
        self.dtype = "tf.float32"
        self.shape = np.shape(value)
        self._value = value

    def numpy(self) -> Any:
        return np.asarray(self._value, np.float32) if self.shape else np.float32(self._value)


def same(left: object, right: object) -> bool:
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    return type(left) is type(right) and (both_nan or left == right)


@pytest.mark.parametrize("again", [1, 2])  # the second time goes the short way
@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None), (True, True), (3, 3), (2.5, 2.5), (float("nan"), float("nan")), (-math.inf, -math.inf),
        (2**70, 2**70), (-(2**64), -(2**64)), ("text", "text"), (Name("n"), "n"), (Loud(1.5), 1.5),
        (np.float32(0.1), 0.10000000149011612), (np.float64(0.1), 0.1), (np.float16(2), 2.0),
        (np.int8(-3), -3), (np.uint64(2**64 - 1), 2**64 - 1), (np.bool_(True), True), (np.str_("s"), "s"),
        (np.longdouble(0.5), 0.5), (np.float32("nan"), float("nan")), (np.float32("inf"), math.inf),
        (np.array(1.5), 1.5), (np.array([[7]]), 7), (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (np.array([]), []), (np.array([1, 2], np.longdouble), [1.0, 2.0]),
        (np.array([1, None, "x"], object), [1, None, "x"]),
        (torch.tensor(1.5), 1.5), (torch.tensor(2), 2), (torch.tensor(True), True),
        (torch.tensor([0.5], requires_grad=True), 0.5), (torch.tensor(0.5, requires_grad=True) * 2, 1.0),
        (torch.tensor(1.5, dtype=torch.bfloat16), 1.5), (torch.tensor([1, 2]), [1, 2]),
        (torch.nn.Parameter(torch.tensor([1.0, 2.0])), [1.0, 2.0]),
        (torch.eye(2).to_sparse(), [[1.0, 0.0], [0.0, 1.0]]),
        (torch.tensor([float("nan"), 1.0])[:1], float("nan")),
        (EagerTensor(0.5), 0.5), (EagerTensor([1.0, 2.0]), [1.0, 2.0]),
        (Decimal("0.5"), 0.5), (Decimal("NaN"), float("nan")), (Decimal("sNaN"), "sNaN"),
        (Fraction(1, 4), 0.25), (Fraction(10**400), str(10**400)),
        (1 + 2j, "(1+2j)"), (np.complex64(1j), "1j"), (torch.tensor(1 + 2j), "(1+2j)"),
        (np.clongdouble(1 + 2j), "(1+2j)"),
        (np.datetime64("2026-11-21T10:00:00.000000001"), "2026-11-21T10:00:00.000000001"),
        (np.array(["2026-11-21"], "M8[ns]"), "2026-11-21T00:00:00.000000000"),
        (dt.date(2026, 11, 21), "2026-11-21"), (Path("/a/b"), "/a/b"), (b"raw", "b'raw'"),
        (Colour.RED, "Colour.RED"), (Level.HIGH, 3), (Mode.FAST, "fast"), ({"a": 1}, "{'a': 1}"),
        ([1, (2, np.float32(3))], [1, [2, 3.0]]), ("a\udc80", "a\\udc80"), ("漢字", "漢字"),
        (Shy(), "<Shy: cannot be shown>"), ([Shy(), 1], ["<Shy: cannot be shown>", 1]),
    ],
)  # fmt: skip
def test_to_plain(value: object, plain: object, again: int) -> None:
    for _ in range(again):
        found = to_plain(value)
    assert same(found, plain), found


def test_the_value_is_the_one_at_the_call() -> None:
    array, tensor, items = np.zeros(2), torch.zeros(2), [1, [2]]
    found = [to_plain(array), to_plain(tensor), to_plain(items)]
    array += 1
    tensor += 1
    items.clear()
    assert found == [[0.0, 0.0], [0.0, 0.0], [1, [2]]]


def test_scalars_after_arrays_of_the_same_class() -> None:
    for _ in range(3):
        assert to_plain(torch.zeros(2)) == [0.0, 0.0]
        assert to_plain(torch.tensor(3)) == 3
        assert to_plain(torch.tensor(2j)) == "2j"


def test_what_contains_itself_ends() -> None:
    items: list[Any] = [1]
    items += [items, items]
    assert to_plain(items) == [1, "...", "..."]
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert unpack(pack(to_plain(deep))) is not None


def test_integers_without_end_are_shown() -> None:
    assert to_plain(1 << MAX_INT_BITS) == hex(1 << MAX_INT_BITS)
    assert unpack(pack(to_plain((1 << MAX_INT_BITS) - 1))) == (1 << MAX_INT_BITS) - 1


@pytest.mark.parametrize("wrap", [lambda array: array, lambda array: [1, array]])
def test_an_array_that_no_row_has_room_for_is_refused_before_it_is_copied(wrap: Any) -> None:
    array = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 20, 1 << 20), (0, 0))  # of a byte
    with pytest.raises(FrameTooLargeError, match=r"1099511627776 values is too large for a row; log rla_"):
        to_plain(wrap(array))


def test_a_tensor_without_data_is_text() -> None:
    assert "meta" in str(to_plain(torch.empty(1, device="meta")))


def test_ctrl_c_inside_a_users_text_is_not_swallowed() -> None:
    class Stop:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        to_plain(Stop())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda_tensors() -> None:
    assert to_plain(torch.tensor([1.5], device="cuda", requires_grad=True)) == 1.5
    assert to_plain(torch.ones(2, device="cuda")) == [1.0, 1.0]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers() | st.binary()
    | st.decimals() | st.fractions() | st.datetimes() | st.floats(width=32).map(np.float32)
    | st.text(st.characters(categories=["Cs", "L"])),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.sets(st.integers())
    | st.dictionaries(st.text(), inner),
    max_leaves=10,
)  # fmt: skip


@pytest.mark.slow
@given(ANY)
def test_whatever_is_logged_fits_into_a_frame(value: object) -> None:
    plain = to_plain(value)
    assert repr(unpack(pack(plain))) == repr(plain)


@given(st.floats() | st.integers() | st.booleans())
def test_numbers_are_kept_exactly(value: float) -> None:
    assert same(to_plain(value), value)
    assert same(to_plain(np.array(value)), value) or abs(value) >= 2**63


@dataclass
class Net:
    width: int = 64
    lr: Any = field(default_factory=lambda: np.float32(0.5))
    colour: Colour = Colour.RED


class Pair(NamedTuple):
    low: float
    high: float


def test_what_is_masked_has_no_value() -> None:
    assert to_plain(np.ma.masked) is None, "and not the 0.0 below the mask"
    assert to_plain(np.ma.array([3.5], mask=[True])) is None
    assert to_plain(np.ma.array([[3.5]])) == 3.5
    assert to_plain(np.ma.array([1, 2], mask=[False, True])) == [1, None]


def test_hyper_parameters_of_every_kind_become_plain_data() -> None:
    parameters = {
        "net": Net(), "args": argparse.Namespace(seed=1, path=Path("/x")),
        "ns": SimpleNamespace(a=None),
        "pair": Pair(0.0, 1.0), "set": {3, 1, 2}, "mixed": {1, "b"}, "queue": collections.deque([1]),
        "ordered": collections.OrderedDict(z=1), "level": Level.HIGH, "mode": Mode.FAST,
        Colour.RED: 1, 5: "five",
        "array": np.arange(3), "scalar": np.array([2]), "tensor": torch.tensor(1.5), "dtype": torch.float32,
        "device": torch.device("cuda:0"), "class": Net, "decimal": Decimal("0.5"), "nan": float("nan"),
        "big": np.zeros(70_000),
    }  # fmt: skip
    plain = plain_hyper_param(parameters)
    assert isinstance(plain, dict)
    assert math.isnan(plain.pop("nan"))
    assert plain.pop("big").startswith("array([0., 0., 0., ...")
    assert plain == {
        "net": {"width": 64, "lr": 0.5, "colour": "RED"}, "args": {"seed": 1, "path": "/x"},
        "ns": {"a": None},
        "pair": {"low": 0.0, "high": 1.0}, "set": [1, 2, 3], "mixed": [1, "b"], "queue": [1],
        "ordered": {"z": 1}, "level": 3, "mode": "fast", "RED": 1, "5": "five",
        "array": [0, 1, 2], "scalar": 2, "tensor": 1.5, "dtype": "torch.float32",
        "device": "cuda:0", "class": repr(Net), "decimal": 0.5,
    }  # fmt: skip


def test_keys_stay_apart_and_have_no_addresses() -> None:
    plain = plain_hyper_param({1: "a", "1": "b", "1 #2": "c", json.dumps: 0, lambda: 0: 1, object(): 2})
    here = f"{__name__}.test_keys_stay_apart_and_have_no_addresses.<locals>.<lambda>"
    assert plain == {
        "1": "a", "1 #2": "b", "1 #2 #2": "c", "json.dumps": 0, here: 1, "<object object>": 2
    }  # fmt: skip
    assert plain_hyper_param({"at": {"x at 0x10": 1}}) == {"at": {"x at 0x10": 1}}
    values = [np.mean, lambda: 0, object(), functools.partial(json.dumps, indent=1), "f at 0x10"]
    assert plain_hyper_param({"values": values})["values"] == [  # type: ignore[index, call-overload]
        "numpy.mean", here, "<object object>", "functools.partial(<function dumps>, indent=1)", "f at 0x10"
    ]  # fmt: skip


def test_parameters_in_omegaconf() -> None:
    from omegaconf import OmegaConf

    config = OmegaConf.create(
        {"lr": 0.1, "twice": "${lr}", "layers": [64, {"width": 2}], "bad": "${nothing}"}
    )
    plain = plain_hyper_param({"config": config})
    assert isinstance(plain, dict)
    assert plain["config"]["lr"] == 0.1
    assert plain["config"]["layers"] == [64, {"width": 2}]
    assert plain["config"]["bad"] == "${nothing}"
    assert plain["config"]["twice"] == 0.1, "what can be resolved is"
    del config["bad"]
    assert plain_hyper_param(config) == {"lr": 0.1, "twice": 0.1, "layers": [64, {"width": 2}]}
    assert plain_hyper_param(config.layers) == [64, {"width": 2}]


def test_parameters_are_never_fatal() -> None:
    loop: dict[str, Any] = {"name": "x"}
    loop["self"] = loop
    loop["list"] = [loop]
    loop["shy"] = Shy()
    loop["odd"] = Net.__new__(Net)
    plain = plain_hyper_param(loop)
    assert isinstance(plain, dict)
    assert plain["self"] == "<cycle>"
    assert plain["list"] == ["<cycle>"]
    assert plain["shy"] == "<Shy: cannot be shown>"
    assert plain["odd"] == {"width": 64, "lr": None, "colour": "RED"}


@given(ANY)
def test_any_parameters_can_be_json_and_yaml(value: object) -> None:
    import yaml

    plain = plain_hyper_param({"value": value})
    assert "value" in json.loads(json.dumps(plain, sort_keys=True))
    assert "value" in yaml.safe_load(yaml.safe_dump(plain))
