from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.legacy_database import LEGACY_TABLE, cells, entries

from rla_client.contract.errors import (
    AmbiguousRunError,
    ArgumentError,
    DatabaseError,
    NoSuchRunError,
    NoSuchTableError,
    UnknownNameError,
)
from rla_client.database import open as open_database
from rla_client.database.curves.curve_cache import CurveCache
from rla_client.database.tree.run_reference import match_runs

MakeRun = Callable[..., str]


def test_filters_tables_and_dates(root: Path, make_run: MakeRun) -> None:
    for number, lr in enumerate([0.1, 0.1, 0.5]):
        make_run(number=number, params={"lr": lr, "net": {"size": number}})
    make_run(number=9, table="other")
    database = open_database(root)
    assert len(database.records("task", "lr == 0.1 and state == 'finished'")) == 2
    assert [record.hyper["net"]["size"] for record in database.records(where="net.size >= 1")] == [1, 2]
    assert len(database.records(where="`return` > 4", limit=2)) == 2
    assert len(database.records(since="2026-11-21T09:30:02")) == 2
    assert database.records("other", "lr == 3") == []
    with pytest.raises(ArgumentError, match="no run has 'lrr'"):
        database.records(where="lrr == 1")
    with pytest.raises(NoSuchTableError):
        database.records("nope")
    with pytest.raises(ArgumentError, match="is not a date"):
        database.records(since="yesterday")


def test_a_run_is_found_by_a_part(root: Path, make_run: MakeRun) -> None:
    first, second = make_run(number=1), make_run(number=2, spaces=True, info="&lr=0.1&x=a b")
    database = open_database(root)
    assert database.find("@last").index == second
    assert database.find("09-30-01").index == first
    assert database.find(second).index == second
    assert database.find(f"task/{first}").index == first
    with pytest.raises(AmbiguousRunError, match="2 runs match"):
        database.find("09-30")
    with pytest.raises(NoSuchRunError):
        database.find("1999")
    assert match_runs([("a", "x"), ("b", "xx")], "x") == [("a", "x")]


def test_curves_in_long_form(root: Path, make_run: MakeRun) -> None:
    make_run(number=1)
    index = make_run(number=2, rows=3)
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("return,extra,time-step\n1,,0\n,5,1\n2,6,2\n")
    database = open_database(root)
    frame = database.curves(database.runs(), ["return", "extra"], bound=5)
    mine = frame[frame["index"] == index]
    assert mine[mine["metric"] == "return"][["x", "value"]].to_numpy().tolist() == [[0, 1], [2, 2]]
    assert mine[mine["metric"] == "extra"][["x", "value"]].to_numpy().tolist() == [[1, 5], [2, 6]]
    assert len(frame[frame["index"] != index]) == 6
    assert len(database.curves("@last", "return", bound=(1, 2))) == 1
    assert len(database.curves([], "return")) == 0
    with pytest.raises(UnknownNameError, match=r"the metric 'extar'\nhint: did you mean 'extra'\?"):
        database.curves(database.runs(), ["return", "extar"])


def test_the_last_parts_of_a_metrics_name_will_do(root: Path, make_run: MakeRun) -> None:
    index = make_run(number=1)
    path = root / "log" / "task" / index / "progress.csv"
    path.write_text("eval/return,train/return,charts/episodic_return,time-step\n1,2,3,0\n")
    make_run(number=2, rows=0)
    database = open_database(root)
    frame = database.curves(database.runs(), ["episodic_return", "train/return"])
    assert frame["value"].tolist() == [3, 2]
    assert frame["metric"].tolist() == ["episodic_return", "train/return"]
    assert frame.attrs["full_names"]["episodic_return"] == "charts/episodic_return"
    scalars = database.find("09-30-01").scalars(["episodic_return", "train/return"])
    assert scalars.to_dict("list") == {"episodic_return": [3], "train/return": [2]}
    with pytest.raises(UnknownNameError, match="did you mean 'charts/episodic_return'"):
        database.find("09-30-01").scalars(["episodic_retrun"])
    path.write_text("eval/return,train/return,time-step\n1,2,0\n")
    with pytest.raises(UnknownNameError, match=r"'return' fits 2 names\nhint: .*eval/return, train/return"):
        database.curves("09-30-01", "return")
    (root / "log" / "task" / index / "progress.csv").write_text("return,time-step\n1,0\n")
    assert database.curves("09-30-01", "return")["value"].tolist() == [1]


def test_curves_come_from_the_cache_only_while_it_is_right(
    root: Path, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = make_run(rows=5)
    database = open_database(root)
    monkeypatch.setattr("rla_client.database.curves.curve_reader.clock", lambda: time.time() + 10)
    first = database.curves("@last", ["return", "time-step"])
    again = database.curves("@last", ["return", "time-step"])
    assert first.equals(again)
    assert len(list(CurveCache(database.state_folder)._folder.rglob("*"))) > 3
    with (root / "log" / "task" / index / "progress.csv").open("a") as file:
        file.write("7.5,50,1.0\n")
    assert database.curves("@last", "return")["value"].tolist()[-1] == 7.5


def test_a_broken_csv_is_warned_about_and_the_rest_is_given(root: Path, make_run: MakeRun) -> None:
    make_run(number=1)
    index = make_run(number=2)
    (root / "log" / "task" / index / "progress.csv").write_bytes(b"a\0b,time-step\n1,2\n")
    database = open_database(root)
    with pytest.warns(UserWarning, match="09-30-02"):
        assert len(database.curves(database.runs(), "return")) == 10


def test_a_silent_running_run_is_unknown(root: Path, make_run: MakeRun) -> None:
    make_run(number=1, state="running")
    make_run(number=2, state="running", updated=time.time() - 181)
    make_run(number=3, state=None)
    states = [record.shown_state(time.time()) for record in open_database(root).records()]
    assert states == ["running", "unknown", "unknown"]
    unknown = open_database(root).records(where="state == 'unknown'")
    assert len(unknown) == 2
    assert open_database(root).frame(unknown)["state"].tolist() == ["unknown", "unknown"]


def test_notebooks_show_text_from_files_escaped(root: Path, make_run: MakeRun) -> None:
    make_run(params={"lr": "<script>alert(1)</script>"})
    database = open_database(root)
    for page in (database._repr_html_(), database.find("@last")._repr_html_()):
        assert "<script>" not in page
        assert "<table>" in page


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="is not a folder"):
        open_database(tmp_path / "nope")


def test_the_originals_data(legacy: Path) -> None:
    database = open_database(legacy)
    assert database.tables() == ["sb3_ppo", "sb_ppo_tf", "test_manger_demo_task"]
    frame = database.runs()
    assert len(frame) == len(entries(legacy, "log", "*/*/*/*/*"))
    assert database.find("15-03-03").hyper_param.env == "CartPole-v1"
    assert len(database.records(where="input_size == 16")) == len(
        entries(legacy, "log", f"{LEGACY_TABLE}/*/*/*/*")
    )
    assert len(database.curves(frame, "perf/mse")) == cells(legacy, "perf/mse") > 50


def test_a_tracked_value_is_meant_whole_and_before_a_part(root: Path, make_run: Callable[..., str]) -> None:
    three = make_run(number=1, info="&lr=0.1&seed=3")
    thirty = make_run(number=2, info="&seed=30&lr=0.1")
    database = open_database(root)
    assert database.find("seed=3").index == three
    assert database.find("&lr=0.1&seed=3").index == three
    assert database.find("seed=3&lr=0.1").index == three
    assert database.find("seed=30").index == thirty
    with pytest.raises(AmbiguousRunError, match="in quotes"):
        database.find("lr=0.1")


def test_microseconds_fit_only_where_nothing_else_does(root: Path, make_run: Callable[..., str]) -> None:
    make_run(number=1, info="&lr=0.1")
    named = make_run(number=2, info="&name=3456")
    database = open_database(root)  # every run was begun at …123456
    assert database.find("3456").index == named
    assert database.find("09-30-02-123456").index == named
    with pytest.raises(AmbiguousRunError):
        database.find("23456")
