"""Tables of a sweep."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rla_client.sweep import results, sweep_table
from rla_client.sweep.journal import Journal
from rla_client.sweep.spec import Metric


def finished(root: Path, metric: str, runs: Sequence[tuple[int, Mapping[str, Any], float | str]]) -> Journal:
    """A sweep whose runs (trial, parameters, last value of the metric) have finished."""
    journal = Journal(root, "lr").hold()
    planned = journal.plan([(trial, dict(parameters)) for trial, parameters, _ in runs])
    for run, (_, _, value) in zip(planned, runs, strict=True):
        item = {"data_root": str(root), "table": "t", "index": f"2026/11/26/{run.number}"}
        folder = root / "log" / item["table"] / item["index"]
        folder.mkdir(parents=True)
        (folder / "progress.csv").write_text(f"time-step,{metric}\n1,{value}\n")
        journal.path(run, "items").write_text(json.dumps(item) + "\n")
        journal.tell(run, "started", engine="local")
        journal.tell(run, "finished")
    journal.release()
    return journal


@pytest.mark.parametrize(
    "name", ["trial", "±", "runs", "run", "state", "took", "tries", "loss", "metric.loss", "seed"]
)
def test_a_parameter_of_any_name_hides_nothing(tmp_path: Path, name: str) -> None:
    metric = Metric("loss", goal="minimize")
    journal = finished(tmp_path, "loss", [(1, {name: "a"}, 2.0), (2, {name: "b"}, 1.0)])
    values = results.Values(journal, metric)
    best, rows = sweep_table.best(values), sweep_table.rows(values, 0.0)
    assert [(row["trial"], row["loss"], row["runs"]) for row in best] == [(2, 1.0, 1), (1, 2.0, 1)]
    assert {(row["run"], row["state"], row["tries"], row["loss"]) for row in rows} == {
        (1, "finished", 1, 2.0),
        (2, "finished", 1, 1.0),
    }
    for row in (*best, *rows):
        assert {row.get(name), row.get(f"parameters.{name}")} & {"a", "b"}
    assert sweep_table.table(rows).count("\n") == len(rows)


@pytest.mark.parametrize("name", ["runs", "trial", "took", "state"])
def test_a_metric_of_any_name_hides_nothing(tmp_path: Path, name: str) -> None:
    metric = Metric(name)
    journal = finished(tmp_path, name, [(1, {"lr": 1}, 2.0), (2, {"lr": 2}, 3.0)])
    values = results.Values(journal, metric)
    best, rows = sweep_table.best(values), sweep_table.rows(values, 0.0)
    assert [(row["trial"], row["lr"]) for row in best] == [(2, 2), (1, 1)]
    assert [3.0 in row.values() for row in (best[0], best[1])] == [True, False]
    assert {row["state"] for row in rows} == {"finished"}
    assert sweep_table.table(best).count("\n") == len(best)
    assert sweep_table.table(rows).count("\n") == len(rows)


def test_a_trial_is_shown_with_what_its_runs_have_in_common(tmp_path: Path) -> None:
    metric = Metric("score")
    runs = [(1, {"lr": 1, "seed": 0}, 1.0), (1, {"lr": 1, "seed": 1}, 2.0)]
    journal = finished(tmp_path, "score", runs)
    (row,) = sweep_table.best(results.Values(journal, metric))
    assert row.keys() == {"trial", "score", "±", "runs", "lr"}


def test_a_run_whose_job_waits_in_slurm_is_queued(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "lr").hold()
    for number, handle in enumerate(("7_0", "7_1", "", "", ""), 1):
        (run,) = journal.plan([(number, {"lr": number})])
        journal.tell(run, "started", engine="slurm", handle="")
        if handle:
            journal.tell(run, "placed", handle=handle)
    journal.path(journal.runs[1], "job").write_text("job 7_0 on node1\n")
    journal.path(journal.runs[2], "job").write_text("job 5_1 on node1\n")  # of an earlier attempt
    for number, age_s in ((4, 0), (5, 1000)):  # begun though no handle is noted, and of an earlier attempt
        path = journal.path(journal.runs[number], "job")
        path.write_text("job 9 on node1\n")
        os.utime(path, (time.time() - age_s,) * 2)
    rows = sweep_table.rows(results.Values(journal, None), time.time() + 60)
    assert [(row["run"], row["state"], row["took"] is None) for row in rows] == [
        (1, "running", False),
        (2, "queued", True),
        (3, "queued", True),
        (4, "running", False),
        (5, "queued", True),
    ]
    assert sweep_table.summary(journal, 1) == "sweep lr: 5 runs: 2 running, 3 queued"
    journal.release()


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
@pytest.mark.parametrize("of", ["last", "best", "mean"])
def test_a_trial_of_which_a_seed_diverged_is_not_the_best(
    tmp_path: Path, of: str, goal: str, broken: float
) -> None:
    metric = Metric("score", goal=goal, of=of)
    good = 0.0 if goal == "minimize" else 9.0
    runs = [(1, {"lr": 1, "seed": seed}, value) for seed, value in enumerate((good, good, broken))]
    runs += [(trial, {"lr": trial, "seed": seed}, 5.0) for trial in (2, 3) for seed in range(3)]
    journal = finished(tmp_path, "score", runs)
    values = results.Values(journal, metric)
    best = sweep_table.best(values)
    assert [(row["trial"], row["runs"]) for row in best] == [(2, 3), (3, 3), (1, 3)]
    assert not math.isfinite(best[-1]["score"])
    assert sweep_table.undecided(values) is None, "a tie of the other two"


@pytest.mark.parametrize(("of", "expected"), [("last", math.nan), ("best", 9.0), ("mean", math.nan)])
def test_a_run_that_diverged(tmp_path: Path, of: str, expected: float) -> None:
    journal = finished(tmp_path, "score", [(1, {"lr": 1}, "9.0\n2,\n3,nan")])
    ((item,),) = (journal.items(run) for run in journal.runs.values())
    assert results.value(item, Metric("score", of=of)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("metric", "columns", "told"),
    [
        ("ret", "train/ret", None),
        ("ret", "ret", None),
        ("ret", "train/ret,eval/ret", "'ret' fits 2 names\nhint: give more of one: train/ret, eval/ret"),
        ("rte", "ret", "no finished run has the metric 'rte'\nhint: did you mean 'ret'?"),
        ("word", "train/word", "no finished run has a number for the metric 'train/word'"),
    ],
)
def test_why_no_run_has_a_value(tmp_path: Path, metric: str, columns: str, told: str | None) -> None:
    value = "good" if metric == "word" else "1,1"[: 2 * columns.count(",") + 1]
    journal = finished(tmp_path, columns, [(1, {"lr": 1}, value)])
    assert results.no_metric(journal, Metric(metric)) == told
