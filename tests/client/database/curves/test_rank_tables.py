"""Ranks of a run: each apart, their mean, one of them; the same from the API and every command."""

from __future__ import annotations

import csv
import json
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from support.written_runs import write_run

from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.database.compare.metric_summary import summaries
from rla_client.database.curves.curve_frame import frame_shares
from rla_client.database.curves.progress_csv import read_columns, recorded_nan
from rla_client.database.curves.rank_tables import (
    RankShare,
    names_of_ranks,
    parse_ranks,
    rank_columns,
    rank_notes,
    rank_of,
    rank_roles,
)
from rla_client.database.database import Database
from rla_client.plot.frames import gather, notes
from rla_client.plot.rla_plotters import plot_func

Rla = Callable[..., CompletedProcess[str]]
ROWS = "loss,time-step,timestamp"


def write_table(root: Path, index: str, role: str, lines: Sequence[str], head: str = ROWS) -> None:
    name = f"progress.{role}.csv" if role else "progress.csv"
    (root / "log" / "task" / index / name).write_text("\n".join([head, *lines]) + "\n")


@pytest.fixture
def index(root: Path) -> str:
    """A run of three ranks and another writer; rank 2 lacks a time-step, rank 0 alone has `eval`."""
    index = write_run(root, rows=1)
    write_table(root, index, "", ["1.0,0,1.0,9.0", "2.0,1,2.0,", "3.0,2,3.0,"], f"{ROWS},eval")
    write_table(root, index, "rank1", ["3.0,0,1.1", "4.0,1,2.1", "5.0,2,3.1"])
    write_table(root, index, "rank2", ["5.0,0,1.2", "nan,2,3.2"])
    write_table(root, index, "rollout-3", ["70.0,0,1.3"], "tokens,time-step,timestamp")
    return index


def test_what_is_asked_for() -> None:
    assert [parse_ranks(text) for text in (None, "all", "mean", "0", "17", 3)] == [
        None,
        "all",
        "mean",
        0,
        17,
        3,
    ]
    for text in ("", "-1", "1.5", "min", "²", True):
        with pytest.raises(ArgumentError, match="all, mean, or the number"):
            parse_ranks(text)


def test_roles_that_are_ranks(tmp_path: Path) -> None:
    ranks = {"rank5": 5, "rank5-2": 5, "rank12-node-b-3f9a1c": 12, "rank5-node-b-3f9a1c-2": 5}
    assert {role: rank_of(role) for role in ranks} == ranks
    assert not any(map(rank_of, ("rank", "rank-3", "ranker5", "rank5-eval", "rollout-3", "p77")))
    for role in ("rank10", "rank2", "rank2-node-b-3f9a1c", "rollout-3"):
        (tmp_path / f"progress.{role}.csv").write_text("a\n")
    assert rank_roles(tmp_path) == {0: [""], 2: ["rank2", "rank2-node-b-3f9a1c"], 10: ["rank10"]}
    names = ["loss", "time-step", "loss@rank1", "own@rank1", "tokens@rollout-3"]
    assert names_of_ranks(names, "mean") == ["loss", "time-step", "own", "tokens@rollout-3"]
    assert names_of_ranks(names, 1) == ["time-step", "loss", "own", "tokens@rollout-3"]
    assert names_of_ranks(names, 0) == ["loss", "time-step", "tokens@rollout-3"]
    assert names_of_ranks(names, "all") == names_of_ranks(names, None) == names


class Table(dict[str, "np.ndarray"]):
    """One that can be counted."""


def test_a_mean_of_many_ranks_holds_few_tables_at_once(tmp_path: Path) -> None:
    made: list[weakref.ref[Table]] = []
    most, count = 0, 60
    for rank in range(count):
        (tmp_path / (f"progress.rank{rank}.csv" if rank else "progress.csv")).touch()

    def read(path: str, _: Sequence[str]) -> Table:
        nonlocal most
        rank = int("".join(filter(str.isdigit, Path(path).name)) or 0)
        table = Table(x=np.array([1.0, rank]), **{"time-step": np.array([3.0, 10.0 + rank % 2])})
        made.append(weakref.ref(table))
        most = max(most, sum(one() is not None for one in made))
        return table

    found = rank_columns(f"{tmp_path}/progress.csv", ["x", "x@*", "@*", "time-step"], read, "mean")
    assert len(made) == count
    assert most <= 4
    assert found["time-step"].tolist() == [3.0, 10.0, 11.0]
    assert found["x"].tolist() == [1.0, 29.0, 30.0]
    assert found["x@*"].tolist() == [60.0, 30.0, 30.0]
    assert found["@*"].tolist() == [60.0] * 3


def test_mean_of_the_ranks_at_each_step(root: Path, index: str) -> None:
    path = str(root / "log" / "task" / index / "progress.csv")
    names = ["loss", "time-step", "loss@*", "@*", "eval", "eval@*"]
    found = rank_columns(path, names, read_columns, "mean")
    assert found["time-step"].tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_equal(
        found["loss"], [3.0, 3.0, np.nan]
    )  # a rank that recorded NaN is not averaged away
    assert recorded_nan(found["loss"]).tolist() == [False, False, True]
    assert found["loss@*"].tolist() == [3.0, 2.0, 3.0]
    assert found["@*"].tolist() == [3.0] * 3
    np.testing.assert_equal(found["eval"], [9.0, np.nan, np.nan])
    assert found["eval@*"].tolist() == [1.0, 0.0, 0.0]


def test_one_rank_alone(root: Path, index: str) -> None:
    path = str(root / "log" / "task" / index / "progress.csv")
    found = rank_columns(path, ["loss", "time-step", "eval"], read_columns, 1)
    assert found["loss"].tolist() == [3.0, 4.0, 5.0]
    assert "eval" not in found
    assert rank_columns(path, ["loss"], read_columns, 0)["loss"].tolist() == [1.0, 2.0, 3.0]
    both = rank_columns(path, ["loss", "tokens@rollout-3", "time-step"], read_columns, 1)
    np.testing.assert_equal(both["tokens@rollout-3"], [np.nan] * 3 + [70.0])
    with pytest.raises(FileNotFoundError):
        rank_columns(path, ["loss"], read_columns, 7)


def test_a_rank_that_moved_to_another_machine_is_one_curve(root: Path, index: str) -> None:
    write_table(root, index, "rank1-node-b-3f9a1c", ["40.0,1,9.0", "50.0,2,9.1"])
    path = str(root / "log" / "task" / index / "progress.csv")
    found = rank_columns(path, ["loss", "time-step"], read_columns, 1)
    assert found["time-step"].tolist() == [0.0, 1.0, 2.0]
    assert found["loss"].tolist() == [3.0, 40.0, 50.0]
    assert rank_columns(path, ["@*"], read_columns, "mean")["@*"].tolist() == [3.0] * 3
    write_table(
        root, index, "rank1", ["3.0,0,1.1", "4.0,1,2.1", "500.0,2,20.0", "600.0,3,20.1"]
    )  # and came back
    found = rank_columns(path, ["loss", "time-step"], read_columns, 1)
    assert found["time-step"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert found["loss"].tolist() == [3.0, 40.0, 500.0, 600.0]


def test_a_run_without_ranks_is_as_it_was(root: Path) -> None:
    index = write_run(root, rows=1)
    write_table(root, index, "", ["1.0,0,1.0", "2.0,0,2.0"])  # two rows of one time-step
    found = rank_columns(str(root / "log" / "task" / index / "progress.csv"), ["loss"], read_columns, "mean")
    assert found["loss"].tolist() == [1.0, 2.0]
    frame = Database(root).curves(index, "loss", ranks="mean")
    assert rank_notes("mean", frame_shares(frame)) == ["no run here has further ranks"]


def test_rows_without_time_steps_are_averaged_one_by_one(root: Path) -> None:
    index = write_run(root, rows=1)
    write_table(root, index, "", ["1.0,0,1.0", "2.0,0,2.0"])
    write_table(root, index, "rank1", ["3.0,0,1.0", "4.0,0,2.0", "6.0,0,3.0"])
    path = str(root / "log" / "task" / index / "progress.csv")
    found = rank_columns(path, ["loss", "loss@*"], read_columns, "mean")
    assert (found["loss"].tolist(), found["loss@*"].tolist()) == ([2.0, 3.0, 6.0], [2.0, 2.0, 1.0])


def test_curves_say_which_ranks_they_are_of(root: Path, index: str) -> None:
    database = Database(root)
    mean = database.curves(index, ["loss", "eval", "tokens"], ranks="mean")
    assert mean[["metric", "x", "value", "ranks", "of_ranks"]].to_numpy().tolist() == [
        ["loss", 0.0, 3.0, 3, 3],
        ["loss", 1.0, 3.0, 2, 3],
        ["eval", 0.0, 9.0, 1, 3],
        ["tokens", 0.0, 70.0, 1, 1],
    ]
    assert rank_notes("mean", frame_shares(mean)) == [
        "mean of 3 ranks at each time-step",
        "loss: 1 of 2 points lack ranks (as few as 2 of 3)",
        "eval: 1 of 3 ranks",
    ]
    apart = database.curves(index, "loss", ranks="all")
    assert apart.groupby("metric", observed=True)["value"].apply(list).to_dict() == {
        "loss": [1.0, 2.0, 3.0],
        "loss@rank1": [3.0, 4.0, 5.0],
        "loss@rank2": [5.0],
    }
    alone = database.curves(index, "loss", ranks=1)
    assert (alone["value"].tolist(), set(alone["role"])) == ([3.0, 4.0, 5.0], {"rank1"})
    assert "ranks" not in alone.columns
    by_time = database.curves(index, "loss", x="timestamp", ranks="all")
    assert by_time.loc[by_time["role"] == "rank1", "x"].tolist() == [1.1, 2.1, 3.1]
    with pytest.raises(UnknownNameError, match="none of these runs has a rank 7\nhint: they have 0, 1, 2"):
        database.curves(index, "loss", ranks=7)
    with pytest.raises(UnknownNameError, match="none of these runs has the metric 'eval'"):
        database.curves(index, "eval", ranks=1)
    scalars = database.find(index).scalars(ranks="mean")
    assert list(scalars.columns) == ["loss", "time-step", "timestamp", "eval", "tokens@rollout-3"]
    assert database.find(index).scalars(["loss"], ranks=2)["loss"].tolist()[0] == 5.0


def test_another_x_is_each_ranks_own(root: Path) -> None:
    index = write_run(root, rows=1)
    write_table(root, index, "", ["1.0,0,1.0,10"], f"{ROWS},epoch")
    write_table(root, index, "rank1", ["3.0,0,1.0,20"], f"{ROWS},epoch")
    database = Database(root)
    apart = database.curves(index, "loss", x="epoch", ranks="all")
    assert apart[["metric", "x", "value"]].to_numpy().tolist() == [
        ["loss", 10.0, 1.0],
        ["loss@rank1", 20.0, 3.0],
    ]
    assert database.curves(index, "loss", x="epoch", ranks=1)["x"].tolist() == [20.0]
    assert database.curves(index, "loss", x="epoch", ranks="mean")["x"].tolist() == [15.0]


def test_a_chain_of_runs_is_cut_for_each_rank(root: Path) -> None:
    first, second = write_run(root, number=1, rows=1), write_run(root, number=2, rows=1)
    write_table(root, first, "", ["1.0,0,1.0", "2.0,1,2.0", "3.0,2,3.0"])
    write_table(root, first, "rank1", ["3.0,0,1.0", "4.0,1,2.0", "5.0,2,3.0"])
    write_table(root, second, "", ["9.0,2,4.0"])
    write_table(root, second, "rank1", ["11.0,2,4.0"])
    file = root / "log" / "task" / second / "run.json"
    parent = {"chain": True, "table": "task", "run": first, "rows": 2, "time_step": 1}
    file.write_text(json.dumps({**json.loads(file.read_text()), "parent": parent}))
    database = Database(root)
    assert database.curves(second, "loss", ranks="mean")["value"].tolist() == [2.0, 3.0, 10.0]
    assert database.curves(second, "loss", ranks=1)["value"].tolist() == [3.0, 4.0, 11.0]
    found = summaries(database, [database.find(second).record], "mean")["loss"]
    assert (found.rows, found.last, found.share) == (3, 10.0, RankShare(3, 0, 2, 2, (2, 2)))


@pytest.mark.slow
def test_commands_take_ranks(root: Path, index: str, rla: Rla) -> None:
    def asked(*words: str) -> str:
        done = rla(words[0], "-d", str(root), *words[1:], columns=200)
        assert done.returncode == 0, done
        return done.stdout

    shown = json.loads(asked("show", "--json", "--ranks", "mean"))
    assert shown["metrics"] == {"loss": 3.0, "eval": 9.0, "tokens@rollout-3": 70.0}
    assert shown["ranks"][0] == "mean of 3 ranks at each time-step"
    text = asked("show", "--ranks", "1")
    assert "last values; rank 1 alone" in text
    assert "loss              5" in text
    assert "loss@rank2" in asked("show", "--ranks", "all", "-m", "loss").rpartition("loss\n")[2]
    done = rla("metrics", "-d", str(root), "--ranks", "mean", "--json")
    rows = {one["metric"]: one for one in json.loads(done.stdout)}
    assert (rows["loss"]["rows"], rows["loss"]["last"], rows["tokens@rollout-3"]["last"]) == (2, 3.0, 70.0)
    assert (
        "mean of 3 ranks at each time-step\nloss: 1 of 3 points lack ranks (as few as 2 of 3)" in done.stderr
    )
    out = root / "curves.csv"
    assert "mean of 3 ranks" in asked("export", str(out), "-m", "loss", "--ranks", "mean")
    table = list(csv.DictReader(out.open()))
    assert [(one["value"], one["ranks"], one["of_ranks"]) for one in table] == [
        ("3.0", "3", "3"),
        ("3.0", "2", "3"),
    ]
    told = asked("plot", "loss", "--ranks", "mean", "-o", str(root / "loss.png"))
    assert "mean of 3 ranks at each time-step; loss: 1 of 2 points lack ranks" in told


def test_commands_refuse_ranks_that_are_not_there(root: Path, index: str, rla: Rla) -> None:
    assert index
    done = rla("show", "-d", str(root), "--ranks", "7")
    assert done.returncode != 0
    assert "none of these runs has a rank 7" in done.stderr
    done = rla("plot", "loss", "-d", str(root), "--ranks", "least", "-o", str(root / "loss.png"))
    assert "all, mean, or the number of one" in done.stderr
    done = rla("export", str(root / "runs.csv"), "-d", str(root), "--ranks", "mean")
    assert "give the --metric, too" in done.stderr


def test_plots_of_python_take_ranks(root: Path, index: str, capsys: pytest.CaptureFixture[str]) -> None:
    database = Database(root)
    found = gather(database.runs(), "loss", ranks="all")
    assert found.metrics == ["loss", "loss@rank1", "loss@rank2"]
    assert notes(gather(database.runs(), "loss", ranks=1)) == ["rank 1 alone"]
    assert index
    _, scores = plot_func(str(root), "task", ["*"], ["lr"], ["loss"], ranks=1)
    assert next(iter(scores.values()))[0] == 5.0
    assert "rank 1 alone" in capsys.readouterr().out
    plot_func(str(root), "task", ["*"], ["lr"], ["loss"], scale_dict={"loss": lambda ys: ys * 2}, ranks="all")
