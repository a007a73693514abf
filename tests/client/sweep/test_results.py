"""Results of a sweep's runs and trials: which is best, what has diverged, what has no value."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from support.sweep_lab import finished_sweep

from rla_client.sweep import results
from rla_client.sweep.spec import TrialMetric


def test_a_trial_is_shown_with_what_its_runs_have_in_common(tmp_path: Path) -> None:
    metric = TrialMetric("score")
    runs = [(1, {"lr": 1, "seed": 0}, 1.0), (1, {"lr": 1, "seed": 1}, 2.0)]
    journal = finished_sweep(tmp_path, "score", runs)
    (row,) = results.best_trials(results.MetricValues(journal, metric))
    assert row.keys() == {"trial", "score", "±", "runs", "lr"}


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("goal", ["maximize", "minimize"])
@pytest.mark.parametrize("of", ["last", "best", "mean"])
def test_a_trial_of_which_a_seed_diverged_is_not_the_best(
    tmp_path: Path, of: str, goal: str, broken: float
) -> None:
    metric = TrialMetric("score", goal=goal, of=of)
    good = 0.0 if goal == "minimize" else 9.0
    runs = [(1, {"lr": 1, "seed": seed}, value) for seed, value in enumerate((good, good, broken))]
    runs += [(trial, {"lr": trial, "seed": seed}, 5.0) for trial in (2, 3) for seed in range(3)]
    journal = finished_sweep(tmp_path, "score", runs)
    values = results.MetricValues(journal, metric)
    best = results.best_trials(values)
    assert [(row["trial"], row["runs"]) for row in best] == [(2, 3), (3, 3), (1, 3)]
    assert not math.isfinite(best[-1]["score"])
    assert results.undecided(values) is None, "a tie of the other two"


@pytest.mark.parametrize(("of", "expected"), [("last", math.nan), ("best", 9.0), ("mean", math.nan)])
def test_a_run_that_diverged(tmp_path: Path, of: str, expected: float) -> None:
    journal = finished_sweep(tmp_path, "score", [(1, {"lr": 1}, "9.0\n2,\n3,nan")])
    ((item,),) = (journal.items(run) for run in journal.runs.values())
    assert results.value(item, TrialMetric("score", of=of)) == pytest.approx(expected, nan_ok=True)


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
    journal = finished_sweep(tmp_path, columns, [(1, {"lr": 1}, value)])
    assert results.no_metric(journal, TrialMetric(metric)) == told
