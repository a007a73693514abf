from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla_client.contract.text.terminal_text import text_width
from rla_client.database.text.machine_text import json_text
from rla_client.database.text.numbers import plain
from rla_client.database.text.text_tables import cut, table_text


def test_numbers_to_the_right_and_nothing_for_none() -> None:
    text = table_text(["name", "value"], [["a", 1.5], ["long", None], ["\u7535", 22.25]], 80)
    assert text.splitlines() == ["name  value", "a       1.5", "long      -", "\u7535    22.25"]
    assert table_text(["a", "b"], [], 80) == "a  b"


def test_what_does_not_fit_is_cut_and_named() -> None:
    lines = table_text(["a", "b", "c"], [["x" * 30, "y" * 30, "z"]], 50).splitlines()
    assert lines[1] == "x" * 30 + "  " + "y" * 17 + "…"
    assert lines[2] == "(not shown for want of room: c; --json has all)"


def test_names_and_values_from_files_never_reach_the_terminal_raw() -> None:
    text = table_text(["evil\x1b[31m"], [["\x1b]0;x\x07\u202e"], ["\ud800"]], 80)
    assert text.split("\n") == ["evil?[31m", "?]0;x??", "?"]


def test_json_has_no_numbers_that_json_does_not_know() -> None:
    found = {"a": [1.5, float("nan")], "b": ({"c": float("-inf")},), "d": None}
    assert json.loads(json_text(found), parse_constant=pytest.fail) == {
        "a": [1.5, "nan"], "b": [{"c": "-inf"}], "d": None,
    }  # fmt: skip


def test_whole_numbers_are_whole_as_far_as_a_float_knows() -> None:
    assert [plain(value) for value in (3.0, 2.5, "3.0")] == [3, 2.5, "3.0"]
    assert repr(plain(-1e308)) == "-1e+308"


@given(
    st.lists(st.tuples(st.text(max_size=30), st.none() | st.integers() | st.floats() | st.text(max_size=90))),
    st.integers(20, 100),
)
def test_no_line_is_wider_than_the_room(rows: list[tuple[object, object]], room: int) -> None:
    text = table_text(["first", "second"], rows, room)
    assert len(text.split("\n")) in {len(rows) + 1, len(rows) + 2}
    assert max(map(text_width, text.split("\n"))) <= room


@pytest.mark.parametrize("room", [1, 2, 5])
def test_cut_keeps_whole_wide_characters(room: int) -> None:
    assert text_width(cut("\u7535\u8def\u677f\u5b50", room)) <= room


def test_a_long_cell_in_a_pipe_is_whole_and_does_not_widen_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = table_text(["name", "value"], [("long", "x" * 100_000), *[("short", "y")] * 1000])
    assert "x" * 100_000 in text
    assert len(text) < 400_000


def test_columns_of_whole_runs_are_aligned_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    index = "2026/11/25/04-34-59-384781_192.0.2.2_&seed=1&lr=0.001"
    head, first, second = table_text(["run", "n"], [[f"{index}&name=long", "a"], [index, "b"]]).split("\n")
    assert head.index(" n") == first.index(" a") == second.index(" b")
