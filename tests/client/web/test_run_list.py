"""The list of runs as the server answers for it."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.page_lab import PageServer
from support.page_runs import (
    HOSTILE,
    LiveRun,
    write_hostile,
    write_many_metrics,
    write_many_runs,
    write_odd_values,
    write_page_run,
    write_small,
    write_sweep,
)
from support.waiting import wait_until

Serve = Callable[..., PageServer]
BY_COLUMN = (
    "number",
    "place",
    "table",
    "index",
    "state",
    "time",
    "step",
    "took",
    "host",
    "tags",
    "note",
    "problem",
    "tracked",
    "metric",
    "value",
)


def by_index(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Runs of an answer by their index."""
    rows = zip(*(answer[name] for name in BY_COLUMN), strict=True)
    return {row["index"]: row for row in (dict(zip(BY_COLUMN, values, strict=True)) for values in rows)}


def columns_of(
    server: PageServer, names: Sequence[str], numbers: Sequence[int] | None = None
) -> dict[str, list[Any]]:
    """Values by column, and the numbers of the runs they are of."""
    answer = server.ask("columns", {"names": list(names), "numbers": numbers and list(numbers)})
    assert all(len(values) == len(answer["number"]) for values in answer["values"])
    return {"": answer["number"], **dict(zip(names, answer["values"], strict=True))}


def rows_when(
    server: PageServer, since: int, test: Callable[[dict[str, Any]], object], what: str
) -> dict[str, Any]:
    """The first answer since a version that passes a test; looks are some seconds apart."""

    def found() -> dict[str, Any] | None:
        answer: dict[str, Any] = server.ask("runs", {"since": since})
        return answer if test(answer) else None

    return wait_until(found, what=what)


def test_rows_of_a_sweep(page_server: Serve, root: Path) -> None:
    indices = write_sweep(root)
    server = page_server(root)
    answer = server.ask("runs")
    rows = by_index(answer)
    assert set(rows) == set(indices)
    assert answer["databases"] == [str(root)]
    assert (answer["problems"], answer["gone"]) == ([], [])
    assert sorted(answer["number"]) == list(range(6))
    row = rows[indices[4]]
    assert (row["table"], row["host"], row["state"], row["step"]) == ("other/deep", "box", "finished", 49)
    assert row["tracked"] == {"lr": "0.01", "seed": "1"}
    assert (row["metric"], row["value"]) == ("return", pytest.approx(0.01 * 49 + 1))
    assert row["took"] == 50
    assert {one["table"] for one in rows.values()} == {"task", "other/deep"}


def test_runs_with_items_of_each_kind(page_server: Serve, root: Path) -> None:
    indices = write_small(root)
    rows = by_index(page_server(root).ask("runs"))
    assert list(rows) == sorted(indices, key=list(rows).index)
    assert set(rows) == set(indices)
    assert {row["value"] for row in rows.values()} == {4.5}


@pytest.mark.slow
def test_since_a_version_only_what_changed(page_server: Serve, root: Path) -> None:
    write_sweep(root)
    server = page_server(root)
    first = server.ask("runs")
    again = server.ask("runs", {"since": first["version"]})
    assert (again["number"], again["gone"], again["version"]) == ([], [], first["version"])
    assert again["boot"] == first["boot"]
    new = write_page_run(root, 30, table="third")
    second = rows_when(server, first["version"], lambda answer: answer["number"], "the new run")
    assert list(by_index(second)) == [new]
    assert second["version"] > first["version"]
    assert second["number"] == [6]


@pytest.mark.slow  # looks are LOOK_S apart
def test_a_run_that_grew_is_told_with_its_new_step(page_server: Serve, root: Path) -> None:
    write_page_run(root, 1)
    live = LiveRun(root)
    server = page_server(root)
    first = server.ask("runs")
    assert by_index(first)[live.index]["state"] == "running"
    live.append(77.0)
    grown = rows_when(server, first["version"], lambda answer: answer["number"], "the row")
    row = by_index(grown)[live.index]
    assert (row["step"], row["value"]) == (3, 77.0)
    assert row["number"] == by_index(first)[live.index]["number"]
    live.close()
    ended = rows_when(server, grown["version"], lambda answer: answer["number"], "the end")
    assert by_index(ended)[live.index]["state"] == "finished"


@pytest.mark.slow  # looks are LOOK_S apart
def test_a_note_that_came_is_a_change(page_server: Serve, root: Path) -> None:
    (index,) = write_small(root, 1)
    server = page_server(root)
    first = server.ask("runs")
    note = {"tags": ["best"], "note": "look at this"}
    (root / "log" / "task" / index / "note.json").write_text(json.dumps(note))
    changed = rows_when(server, first["version"], lambda answer: answer["number"], "the note")
    assert by_index(changed)[index]["tags"] == ["best"]
    assert by_index(changed)[index]["note"] == "look at this"


@pytest.mark.slow  # looks are LOOK_S apart
def test_a_run_that_went_is_told_once_and_its_number_is_no_other_runs(page_server: Serve, root: Path) -> None:
    kept, gone = write_page_run(root, 0), write_page_run(root, 1)
    server = page_server(root)
    first = server.ask("runs")
    number = by_index(first)[gone]["number"]
    for kind in ("log", "hyperparameter"):
        shutil.rmtree(root / kind / "task" / gone)
    answer = rows_when(server, first["version"], lambda answer: answer["gone"], "its end")
    assert (answer["gone"], answer["number"]) == ([number], [])
    assert server.ask("runs", {"since": answer["version"]})["gone"] == []
    assert list(by_index(server.ask("runs"))) == [kept]
    assert columns_of(server, ["lr"], [number]) == {"": [], "lr": []}
    back = write_page_run(root, 1)
    assert back == gone
    again = rows_when(server, answer["version"], lambda answer: answer["number"], "its return")
    assert again["number"] == [number]


def test_what_no_run_is_called_is_left_out(page_server: Serve, root: Path) -> None:
    write_page_run(root, 0)
    server = page_server(root)
    server.ask("runs")
    assert columns_of(server, ["lr"], [0, 0, 1, -1, 10**30]) == {"": [0], "lr": [0.1]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("lr == 0.1", 3),
        ("lr == 0.1 and seed > 0", 2),
        ("table == 'other/deep'", 3),
        ("host == 'box'", 3),
        ("`return` > 2", 3),
        ("net.width == 64", 6),
        ("env in ['Hopper-v4', 'x']", 6),
        ("not (lr < 0.05)", 3),
        ("lr == 77", 0),
        ("missing is None and lr == 0.1", 3),
        ("state == 'finished'", 6),
    ],
)
def test_a_filter(page_server: Serve, root: Path, where: str, expected: int) -> None:
    write_sweep(root)
    if where == "`return` > 2":
        expected = sum(row["value"] > 2 for row in by_index(page_server(root).ask("runs")).values())
    server = page_server(root)
    server.ask("runs")
    found = server.ask("fitting", {"where": where})
    assert len(found) == expected
    assert found == sorted(set(found))


def test_a_filters_answer_is_what_it_says(page_server: Serve, root: Path) -> None:
    write_sweep(root)
    server = page_server(root)
    server.ask("runs")
    numbers = server.ask("fitting", {"where": "seed == 1"})
    assert columns_of(server, ["seed"], numbers)["seed"] == [1, 1]


@pytest.mark.parametrize(
    ("where", "word"),
    [
        ("lr ==", "lr =="),
        ("lr = 1", "=="),
        ("nothing_like_it == 1", "nothing_like_it"),
        ("f(1)", "f"),
        ("", ""),
    ],
)
def test_an_error_in_a_filter_says_what_is_wrong(
    page_server: Serve, root: Path, where: str, word: str
) -> None:
    write_sweep(root)
    server = page_server(root)
    server.ask("runs")
    said = server.refused("fitting", {"where": where})
    assert word in said
    assert "Traceback" not in said
    assert len(said) < 2000


def test_columns_are_values_in_the_order_asked(page_server: Serve, root: Path) -> None:
    write_sweep(root)
    server = page_server(root)
    server.ask("runs")
    assert columns_of(server, ["seed", "lr", "net.width", "loss", "no such"], [5, 0, 2]) == {
        "": [5, 0, 2],
        "seed": [2, 0, 2],
        "lr": [0.01, 0.1, 0.1],
        "net.width": [64, 64, 64],
        "loss": [pytest.approx(1 / 52), pytest.approx(1 / 50), pytest.approx(1 / 52)],
        "no such": [None, None, None],
    }
    assert columns_of(server, ["lr"])[""] == list(range(6))
    assert columns_of(server, ["lr", "lr"])[""] == list(range(6))


def test_numbers_that_json_has_none_for_are_texts(page_server: Serve, root: Path) -> None:
    write_odd_values(root)
    params = {"lr": math.inf, "low": -math.inf, "none": None, "big": 2**70, "flag": True, "odd": math.nan}
    write_page_run(root, 1, params=params, tracked=())
    server = page_server(root)
    rows = by_index(server.ask("runs"))  # strict JSON, or it would not come to here
    assert len(rows) == 2
    answer = columns_of(server, ["return", "never", "lr", "low", "odd", "none", "big", "flag"], [0, 1])
    assert answer["never"] == ["nan", None]
    assert answer["lr"][1] == "inf"
    assert answer["low"][1] == "-inf"
    assert answer["odd"][1] == "nan"
    assert answer["none"][1] is None
    assert answer["big"][1] == str(2**70)
    assert answer["flag"][1] is True


def test_columns_of_hyper_parameters_that_are_called_as_an_answers_own(
    page_server: Serve, root: Path
) -> None:
    write_page_run(root, 0, params={"number": 7, "=x": 8, "x": 9, "__proto__": 1}, tracked=())
    server = page_server(root)
    server.ask("runs")
    names = ["number", "=x", "x", "__proto__"]
    assert columns_of(server, names) == {"": [0], "number": [7], "=x": [8], "x": [9], "__proto__": [1]}


def test_what_differs_and_what_there_is(page_server: Serve, root: Path) -> None:
    write_sweep(root)
    server = page_server(root)
    server.ask("runs")
    assert set(server.ask("differing", {"numbers": [0, 1, 2, 3, 4, 5]})) == {"lr", "seed"}
    assert server.ask("differing", {"numbers": [0, 1]}) == ["seed"]
    assert server.ask("differing", {"numbers": []}) == []
    names = server.ask("names")
    assert {"state", "host", "tags"} <= set(names["fields"])
    assert {"lr", "seed", "env", "net.width"} <= set(names["hyper"])
    assert {"return", "loss"} <= set(names["metrics"])
    assert names["values"]["lr"] == ["0.01", "0.1"]
    assert names["values"]["table"] == ["'other/deep'", "'task'"]
    assert server.ask("metrics", {"numbers": [0, 1]}).items() >= {"return": 2, "loss": 2}.items()


def test_several_databases(page_server: Serve, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    index = write_page_run(one, 0, params={"lr": 0.5}, tracked=())
    assert write_page_run(two, 0, params={"lr": 0.25}, tracked=()) == index
    server = page_server(one, two, one)
    answer = server.ask("runs")
    assert answer["databases"] == [str(one), str(two)]
    assert sorted(zip(answer["place"], answer["index"], strict=True)) == [(0, index), (1, index)]
    values = columns_of(server, ["lr"], answer["number"])["lr"]
    assert dict(zip(answer["place"], values, strict=True)) == {0: 0.5, 1: 0.25}


@pytest.mark.slow  # looks are LOOK_S apart
def test_a_database_that_goes_is_a_problem_told_and_the_other_stays(
    page_server: Serve, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_page_run(one, 0)
    write_page_run(two, 1)
    server = page_server(one, two)
    version = server.ask("runs")["version"]
    two.rename(tmp_path / "away")
    answer = rows_when(server, version, lambda answer: answer["problems"] or answer["gone"], "its end")
    assert "two" in str(answer["problems"]) or answer["gone"] == [1]
    (tmp_path / "away").rename(two)
    rows_when(server, 0, lambda answer: len(answer["number"]) == 2 and not answer["problems"], "its return")


@pytest.mark.slow
def test_a_run_that_cannot_be_read_has_a_problem_and_hides_no_other(page_server: Serve, root: Path) -> None:
    bad, good = write_small(root, 2)
    (root / "log" / "task" / bad / "run.json").write_text("{")
    rows = by_index(page_server(root).ask("runs"))
    assert "run.json" in rows[bad]["problem"]
    assert rows[good]["problem"] is None


def test_what_a_hostile_run_wrote_comes_as_it_is(page_server: Serve, root: Path) -> None:
    indices = write_hostile(root)
    server = page_server(root)
    rows = by_index(server.ask("runs"))
    assert set(rows) == set(indices)
    assert [rows[index]["tags"][0] for index in indices] == list(HOSTILE)
    assert [rows[index]["host"] for index in indices] == list(HOSTILE)
    values = columns_of(server, HOSTILE, [rows[index]["number"] for index in indices])
    for place, text in enumerate(HOSTILE):
        assert values[text][place] in {text, 3.0}, text
    assert set(HOSTILE) <= set(server.ask("names")["metrics"])
    said = server.refused("fitting", {"where": "`<script>` == 1"})
    assert "<script>" in said


def test_names_that_are_no_unicode_do_no_harm(page_server: Serve, root: Path) -> None:
    write_page_run(root, 0)
    folder = os.fsencode(root / "log") + b"/b\xff\xfed/2026/11/21/09-30-00-000001_10.0.0.5_&lr=1"
    try:
        os.makedirs(folder)
    except OSError:
        pytest.skip("this file system takes no such name")
    with open(folder + b"/progress.csv", "w") as file:
        file.write("return,time-step,timestamp\n1.0,1,1.0\n")
    server = page_server(root)
    assert 0 in server.ask("runs")["number"]


def test_ten_thousand_metrics(page_server: Serve, root: Path) -> None:
    write_many_metrics(root)
    server = page_server(root)
    server.ask("runs")
    assert len({*server.ask("names")["metrics"]} - {"time-step", "timestamp"}) == 10_000
    assert columns_of(server, ["group7/metric9907"])["group7/metric9907"] == [9907.0]


@pytest.mark.slow
@pytest.mark.further
def test_ten_thousand_runs(page_server: Serve, root: Path) -> None:
    write_many_runs(root)
    server = page_server(root)
    answer = server.ask("runs")
    assert len(by_index(answer)) == 10_000
    assert sorted(answer["number"]) == list(range(10_000))
    assert len(server.ask("fitting", {"where": "seed == 3 and lr == 0.1"})) == 334
    values = columns_of(server, ["number", "return"])
    assert all(last == own + 0.5 for own, last in zip(values["number"], values["return"], strict=True))
    assert set(server.ask("differing", {"numbers": answer["number"]})) == {"lr", "seed", "number"}
    new = write_page_run(root, 20_000)
    changed = rows_when(server, answer["version"], lambda answer: answer["number"], "the new run")
    assert list(by_index(changed)) == [new]
