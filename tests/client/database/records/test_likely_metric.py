"""Which metric is the likely one, and what `rla ls`, `plot` and `metrics` make of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rla_client.database import open as open_database
from rla_client.database.records.likely_metric import likely_metric, likely_of
from rla_client.database.records.record import Record

Rla = Callable[..., Any]
MakeRun = Callable[..., str]


def write_rows(root: Path, index: str, header: str, *rows: str) -> None:
    (root / "log" / "task" / index / "progress.csv").write_text("\n".join([header, *rows]) + "\n")


@pytest.mark.parametrize(
    ("names", "likely"),
    [
        (["loss/policy", "perf/return", "eval/score"], "perf/return"),
        (
            ["Evaluation/MaxReturn", "Evaluation/StdReturn", "Evaluation/AverageReturn"],
            "Evaluation/AverageReturn",
        ),
        (["rollout/ep_len_mean", "rollout/ep_rew_mean", "train/loss"], "rollout/ep_rew_mean"),
        (["window", "win_rate", "loss"], "win_rate"),
        (["time-step", "timestamp", "time/fps", "entropy", "kl"], "entropy"),
        (["brewing", "x"], "brewing"),  # no word in it: the first one
        (["_runtime", "x"], "x"),
        (["Epoch", "misc/total_timesteps", "entropy"], "entropy"),
        (["Epoch"], "Epoch"),
        (["val_loss_std", "val_loss_epoch"], "val_loss_epoch"),
        (["profiling/Time taken: GRPOTrainer._calculate_rewards", "train/reward"], "train/reward"),
        (["time-step"], None),
        ([], None),
    ],
)
def test_the_likely_metric(names: list[str], likely: str | None) -> None:
    assert likely_metric(names) == likely


def test_of_several_runs_most_decide_then_the_newest() -> None:
    def records(*likely: str) -> list[Record]:
        return [Record("task", f"{place}", likely=name) for place, name in enumerate(likely)]

    assert likely_of(records("loss", "loss", "return", "")) == "loss"
    assert likely_of(records("loss", "return")) == "return"
    assert likely_of(records("", "")) is None


@pytest.mark.slow
def test_ls_shows_the_likely_metric(rla: Rla, root: Path, make_run: MakeRun) -> None:
    where = ("-d", str(root))
    first, second = make_run(number=1, info="&lr=0.1"), make_run(number=2, info="&lr=0.2")
    write_rows(root, first, "loss,perf/return,time-step", "9,1,0", "8,2.5,1")
    write_rows(root, second, "loss,perf/return,time-step", "9,1,0", "8,nan,1")
    lines = rla("ls", *where).stdout.splitlines()
    assert lines[0].split() == ["run", "state", "step", "took", "perf/return", "lr"]
    assert [line.split()[4] for line in lines[1:]] == ["2.5", "nan"]
    assert [line.split()[4] for line in rla("ls", "-m", "loss", *where).stdout.splitlines()] == [
        "loss",
        "8",
        "8",
    ]
    listed = json.loads(rla("ls", "--json", "-n", "1", *where).stdout)[0]
    assert listed["metric"] == "perf/return"
    named = rla("ls", "-c", "metric,value", "-w", "value > 2", "-s", "value", *where).stdout
    assert [line.split() for line in named.splitlines()[1:]] == [["perf/return", "2.5"]]
    write_rows(root, second, "note,score,time-step", "good,3,1")
    lines = rla("ls", *where).stdout.splitlines()
    assert lines[0].split()[4] == "metric"
    assert [line.split()[4] for line in lines[1:]] == ["perf/return=2.5", "score=3"]
    write_rows(root, first, "time-step,text", "1,good")
    write_rows(root, second, "time-step,text", "1,good")
    assert rla("ls", *where).stdout.splitlines()[0].split() == ["run", "state", "step", "took", "lr"]


@pytest.mark.slow
def test_ls_groups_runs(rla: Rla, root: Path, make_run: MakeRun) -> None:
    where = ("-d", str(root))
    for number, (lr, value) in enumerate(((0.1, 1), (0.1, 3), (0.02, 7), (0.02, 7), (0.02, 0))):
        state = "failed" if number == 4 else "finished"
        index = make_run(number=number, info="", params={"agent": {"lr": lr}}, state=state)
        cell = "" if number == 4 else value
        write_rows(root, index, "loss,return,time-step", f"5,{cell},1")
    lines = rla("ls", "--group", "lr", *where, columns=120).stdout.splitlines()
    assert lines[0].split() == ["agent.lr", "runs", "states", "return"]
    assert lines[1].split(maxsplit=2) == ["0.02", "3", "1 failed, 2 finished  7 ± 0 (2 run(s))"]
    assert lines[2].split(maxsplit=2) == ["0.1", "2", "2 finished            2 ± 13"]
    found = json.loads(rla("ls", "-g", "lr", "-m", "loss", "--json", *where).stdout)
    assert [(row["agent.lr"], row["loss"], row["loss:ci95"], row["loss:runs"]) for row in found] == [
        (0.02, 5, 0, 3),
        (0.1, 5, 0, 2),
    ]
    for words, text in (
        (["-g", "lrr"], "did you mean 'agent.lr'?"),
        (["-g", "lr", "-c", "run"], "--columns"),
    ):
        done = rla("ls", *words, *where)
        assert (done.returncode, done.stdout) == (1, "")
        assert text in done.stderr
    assert "task" in rla("ls", "-g", "table,state", *where).stdout
    assert rla("ls", "-g", "lr", "-w", "lr > 9", *where).stdout == "no runs match\n"
    assert json.loads(rla("ls", "-g", "lr", "-w", "lr > 9", "--json", *where).stdout) == []


@pytest.mark.slow
def test_ls_says_what_seeds_say_of_groups(rla: Rla, root: Path, make_run: MakeRun) -> None:
    for number, (lr, value) in enumerate(((0.1, 1), (0.1, 3), (0.1, 5), (0.2, 4), (0.2, 2), (0.2, 6))):
        index = make_run(number=number, info="", params={"lr": lr, "seed": number % 3})
        write_rows(root, index, "loss,return,time-step", f"{value},{value},1")
    (line,) = rla("ls", "--group", "lr", "-d", str(root)).stderr.splitlines()[1:]
    assert line.startswith("too few seeds to tell lr=0.2 from lr=0.1: ")
    by_loss = rla("ls", "--group", "lr", "-m", "loss", "-d", str(root)).stderr
    assert "too few seeds to tell lr=0.1 from lr=0.2" in by_loss
    assert "seeds" not in rla("ls", "--group", "seed", "-d", str(root)).stderr
    assert rla("ls", "--group", "lr", "--json", "-d", str(root)).stderr == ""
    index = make_run(number=6, info="", params={"lr": 0.2, "seed": 6})
    write_rows(root, index, "loss,return,time-step", "4,4,9")
    assert "seeds" not in rla("ls", "--group", "lr", "-d", str(root)).stderr, "runs of unequal length"


@pytest.mark.slow
def test_metrics_lists_names_rows_and_ranges(rla: Rla, root: Path, make_run: MakeRun) -> None:
    where = ("-d", str(root))
    first, second = make_run(number=1), make_run(number=2)
    write_rows(root, first, "loss,return,time-step", "9,1,0", "8,2.5,1")
    write_rows(root, second, "loss,note,time-step", "7,good,0", ",better,1")
    make_run(number=0, kinds=("hyperparameter",))
    done = rla("metrics", *where)
    assert done.stderr.startswith("task/2026/11/21/09-30-02")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["metric", "rows", "last", "min", "max"],
        ["loss", "1", "7", "7", "7"],
        ["note", "0", "better", "-", "-"],
    ]
    found = json.loads(rla("metrics", "--table", "task", "--json", *where).stdout)
    assert found[0] == {"metric": "loss", "runs": 2, "rows": 3, "last": 7, "min": 7, "max": 9}
    assert [row["metric"] for row in found] == ["loss", "return", "note"]
    assert "return" in rla("metrics", "09-30-01", *where).stdout
    empty = rla("metrics", "09-30-00", *where)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "no metric yet" in empty.stderr
    assert rla("metrics", "09-30-09", *where).returncode == 1


@pytest.mark.slow
def test_plot_without_a_metric_takes_the_likely_one(
    rla: Rla, root: Path, make_run: MakeRun, tmp_path: Path
) -> None:
    index = make_run()
    write_rows(root, index, "loss,perf/return,time-step", "9,1,0", "8,2.5,1")
    out = tmp_path / "a.png"
    done = rla("plot", "-o", str(out), "-d", str(root))
    assert done.returncode == 0, done.stderr
    assert (
        done.stderr
        == "perf/return: chosen by its name; to choose another: rla plot METRIC (rla metrics lists them)\n"
    )
    assert out.stat().st_size > 1000
    write_rows(root, index, "time-step", "0")
    done = rla("plot", "-o", str(tmp_path / "b.png"), "-d", str(root))
    assert (done.returncode, done.stdout) == (1, "")
    assert "none of these runs has a metric" in done.stderr
    assert open_database(root).records()[0].likely == ""
