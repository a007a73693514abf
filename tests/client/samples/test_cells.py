from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest

from rla_client.contract.spool.protocol import pack, unpack
from rla_client.samples.cells import CUT, clean_row, is_tokens, plain_row, shortened


def _plain(row: dict[Any, Any], max_chars: int = 1000, *, tokens: bool = False) -> dict[str, Any]:
    return plain_row(row, max_chars, withheld=None if tokens else set())


def test_what_changes_later_does_not_change_what_was_logged() -> None:
    talk = [{"role": "user", "content": "hi"}]
    plain = _plain({"prompt": talk})
    talk[0]["content"] = "changed"
    assert plain == {"prompt": [{"role": "user", "content": "hi"}]}


def test_long_cells_lose_their_middle_and_are_named() -> None:
    plain = _plain({"a": "x" * 5000, "b": [{"c": "y" * 5000}], "c": "z" * 1000})
    assert plain[CUT] == ["a", "b"]
    assert len(plain["a"]) < 1100
    assert len(plain["b"]) < 1100
    assert plain["c"] == "z" * 1000
    assert "4000 characters cut" in plain["a"]
    assert shortened("ab" * 100, 4).startswith("ab\n")


def test_token_ids_and_log_probabilities_only_on_request() -> None:
    row = {
        "token_ids": [1, 2],
        "logprobs": [0.5],
        "completion_ids": (1,),
        "tokens_prompt": 5,
        "tokens": 7,
        "id": "x",
    }
    assert _plain(row) == {"tokens_prompt": 5, "tokens": 7, "id": "x"}
    assert _plain(row, tokens=True)["completion_ids"] == [1]


def test_columns_of_tokens_that_are_left_out_are_named() -> None:
    withheld: set[str] = set()
    row = {
        "ids": [3, 4],
        "mask": np.ones(3),
        "log_probs": [],
        "doc_ids": ["a", "b"],
        "tokens": np.int64(5),
        "grid": [1, 2],
    }
    plain = plain_row(row, 1000, withheld=withheld)
    assert plain == {"doc_ids": ["a", "b"], "tokens": 5, "grid": [1, 2]}
    assert withheld == {"ids", "mask", "log_probs"}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("input_ids", True),
        ("old_log_probs", True),
        ("attention_mask", True),
        ("grids", False),
        ("problem", False),
    ],
)
def test_names_of_tokens(name: str, is_one: bool) -> None:
    assert is_tokens(name) is is_one


def test_what_pandas_has_for_no_value_is_none() -> None:
    pandas = pytest.importorskip("pandas")
    plain = _plain(
        {"a": pandas.NA, "b": pandas.NaT, "c": [pandas.NA, 1], "d": pandas.Timestamp("2026-01-02")}
    )
    assert plain == {"a": None, "b": None, "c": [None, 1], "d": "2026-01-02 00:00:00"}


def test_pictures_in_lists_and_messages_are_references_too() -> None:
    picture = object()
    row = {
        "a": picture,
        "b": [picture, "text"],
        "c": [{"role": "user", "content": [{"image": picture}]}],
        "d": 1,
    }
    plain = plain_row(
        row,
        1000,
        withheld=None,
        refer=lambda key, one: {"image": f"{key}.png"} if one is picture else None,
    )
    assert plain == {
        "a": {"image": "a.png"},
        "b": [{"image": "b.png"}, "text"],
        "c": [{"role": "user", "content": [{"image": {"image": "c.png"}}]}],
        "d": 1,
    }


def test_a_picture_that_is_left_out_has_no_name() -> None:
    plain = plain_row({"a": [object()]}, 1000, withheld=None, refer=lambda _key, _one: {"image": None})
    assert plain == {"a": [{"image": None}]}


@pytest.mark.parametrize("kind", [list, dict])
def test_what_holds_itself_more_than_once_ends(kind: type) -> None:
    endless: Any = kind()
    for key in "ab":
        endless.append(endless) if kind is list else endless.update({key: endless})
    shown = ["...", "..."] if kind is list else {"a": "...", "b": "..."}
    assert _plain({"x": [endless]}) == {"x": [shown]}


def test_a_cell_of_endless_size_is_cut() -> None:
    doubled: list[Any] = [1]
    for _ in range(40):
        doubled = [doubled, doubled]
    assert _plain({"x": doubled})[CUT] == ["x"]


def test_an_array_that_no_record_takes_costs_its_cell_alone() -> None:
    assert _plain({"a": "x", "b": np.zeros(17 << 20, dtype=np.uint8)})["a"] == "x"


def test_whatever_it_is_becomes_data_that_can_be_packed() -> None:
    class Message:
        def model_dump(self) -> dict[str, str]:
            return {"role": "assistant"}

    loop: list[Any] = []
    loop.append(loop)
    plain = _plain({"m": [Message()], "loop": loop, 3: {4: object}, "big": 1 << 70, "s": {1}, "none": None})
    assert plain["m"] == [{"role": "assistant"}]
    assert "3" in plain
    unpack(pack(plain))
    with pytest.raises(UnicodeEncodeError):
        pack(_plain({"a": "\udc80", "b": ["\udc80", {"\udc80": 1}]}))
    assert unpack(pack(clean_row(_plain({"a": "\udc80", "b": [{"\udc80": 1}]}))))["b"] == [{"\\udc80": 1}]


class Endless(Mapping[str, int]):
    """A mapping whose items never end."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return map(str, count())

    def items(self) -> ItemsView[str, int]:
        return ((name, 1) for name in self)  # type: ignore[return-value]


class EndlessList(list[int]):
    def __iter__(self) -> Iterator[int]:
        return count()


@pytest.mark.parametrize("cell", [Endless(), EndlessList(), [Endless()], {"a": EndlessList()}])
def test_a_cell_without_an_end_is_cut(cell: object) -> None:
    plain = _plain({"a": cell})
    assert plain[CUT] == ["a"]
    assert len(plain["a"]) < 2000
