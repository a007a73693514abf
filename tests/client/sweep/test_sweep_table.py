"""Tables of a sweep."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.sweep_lab import finished_sweep

from rla_client.sweep import results, sweep_table
from rla_client.sweep.journal import Journal
from rla_client.sweep.spec import TrialMetric


@pytest.mark.parametrize(
    "name", ["trial", "±", "runs", "run", "state", "took", "tries", "loss", "metric.loss", "seed"]
)
def test_a_parameter_of_any_name_hides_nothing(tmp_path: Path, name: str) -> None:
    metric = TrialMetric("loss", goal="minimize")
    journal = finished_sweep(tmp_path, "loss", [(1, {name: "a"}, 2.0), (2, {name: "b"}, 1.0)])
    values = results.MetricValues(journal, metric)
    best, rows = results.best_trials(values), sweep_table.rows(values, 0.0)
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
    metric = TrialMetric(name)
    journal = finished_sweep(tmp_path, name, [(1, {"lr": 1}, 2.0), (2, {"lr": 2}, 3.0)])
    values = results.MetricValues(journal, metric)
    best, rows = results.best_trials(values), sweep_table.rows(values, 0.0)
    assert [(row["trial"], row["lr"]) for row in best] == [(2, 2), (1, 1)]
    assert [3.0 in row.values() for row in (best[0], best[1])] == [True, False]
    assert {row["state"] for row in rows} == {"finished"}
    assert sweep_table.table(best).count("\n") == len(best)
    assert sweep_table.table(rows).count("\n") == len(rows)


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
    rows = sweep_table.rows(results.MetricValues(journal, None), time.time() + 60)
    assert [(row["run"], row["state"], row["took"] is None) for row in rows] == [
        (1, "running", False),
        (2, "queued", True),
        (3, "queued", True),
        (4, "running", False),
        (5, "queued", True),
    ]
    assert sweep_table.summary(journal, 1) == "sweep lr: 5 runs: 2 running, 3 queued"
    journal.release()
