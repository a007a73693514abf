"""What rows are drawn over."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("tensorboardX")

from rla_client.integrations.wandb.step_metrics import (
    MAX_WAIT_S,
    MAX_WAITING,
    DefinedMetric,
    LoggedRow,
    StepMetrics,
)


def row(at: float, wall_time: float = 0.0, **values: float) -> LoggedRow:
    return LoggedRow(values, at, wall_time, commit=True)


def logged(metrics: StepMetrics, one: LoggedRow, *, waits: bool = True) -> list[tuple[float, list[str]]]:
    metrics.take(one.values)
    return [(x, list(due.values)) for due, x in metrics.due(one, waits=waits)]


def test_without_metrics_a_row_is_where_it_was_logged() -> None:
    assert logged(StepMetrics(), row(3, loss=1)) == [(3, ["loss"])]


def test_rows_wait_for_the_first_value_of_their_step_metric() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("*", "step"))
    metrics.define(DefinedMetric("eval_*", "epoch"))
    assert logged(metrics, row(0, a=1)) == []
    assert logged(metrics, row(1, eval_a=1)) == []
    assert logged(metrics, row(2, b=1, step=7)) == [(7, ["a"]), (7, ["b", "step"])]
    assert logged(metrics, row(3, c=1)) == [(7, ["c"])]
    assert logged(metrics, row(4, eval_b=1), waits=False) == [(4, ["eval_b"])]  # its step was given
    assert metrics.step_of("table", 9) == 7
    assert [(x, list(late.values)) for late, x in metrics.rest()] == [(1, ["eval_a"])]
    assert metrics.rest() == []


def test_a_row_that_says_a_step_does_not_wait_for_a_metric_that_never_comes() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("train/*", "train/global_step"))
    metrics.define(DefinedMetric("eval/*", "eval/epoch"))  # which OpenRLHF never logs
    assert logged(metrics, row(0, **{"train/loss": 1, "train/global_step": 2})) == [
        (2, ["train/loss", "train/global_step"])
    ]
    assert logged(metrics, row(9, **{"eval/pass1": 1, "eval/global_step": 2})) == [
        (2, ["eval/pass1", "eval/global_step"])
    ]
    assert metrics.rest() == []


def test_seconds_that_a_step_takes_are_no_step() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("*", "epoch"))
    assert logged(metrics, row(4, **{"loss": 1, "timing/step": 3.7})) == []
    values = {"loss": 1, "timing/step": 3.0, "global_step": 12}
    assert logged(metrics, row(5, **values)) == [(12, list(values))]


def test_a_step_that_the_metric_told_so_far_is_not_its_last_value() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("*", "training_step"))

    def at(given: int, **values: float) -> list[float]:
        one = row(given, **values)
        metrics.take(one.values, given)
        return [x for _, x in metrics.due(one, waits=False)]

    assert at(1, loss=1, training_step=1) == [1]
    assert at(2, accuracy=1) == [2]  # open-instruct's evaluation, before the step's own row
    assert metrics.step_of("samples", 2, is_given=True) == 2
    assert metrics.step_of("samples", 2) == 1
    assert at(2, loss=1, training_step=2) == [2]
    assert at(3, loss=1, training_step=300) == [300]  # not the same any more
    assert at(4, accuracy=1) == [300]


def test_metrics_of_one_call_are_each_at_their_own_step_metric() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("train/*", "train/step"))
    metrics.define(DefinedMetric("eval/*", "eval/step"))
    values = {"train/loss": 1.0, "eval/acc": 2.0, "plain": 3.0, "train/step": 500, "eval/step": 20}
    assert logged(metrics, row(7, **values)) == [
        (500, ["train/loss", "train/step"]),
        (20, ["eval/acc", "eval/step"]),
        (7, ["plain"]),
    ]
    values |= {"train/step": 8, "eval/step": 8}
    ((at, names),) = logged(metrics, row(8, **values))
    assert (at, sorted(names)) == (8, sorted(values))
    late = StepMetrics()
    late.define(DefinedMetric("eval/*", "eval/step"))
    assert logged(late, row(3, **{"loss": 1, "eval/acc": 2})) == [(3, ["loss"])]
    assert logged(late, row(4, **{"eval/acc": 3, "eval/step": 9})) == [
        (9, ["eval/acc"]),
        (9, ["eval/acc", "eval/step"]),
    ]


def test_metrics_over_time_are_at_the_step_that_is_under_way() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("*", "step"))
    metrics.define(DefinedMetric("inference/*", "_timestamp"))
    metrics.define(DefinedMetric("batch/*", "_step"))
    busy = {"inference/busy": 1}
    assert logged(metrics, row(0, **busy)) == [(0, ["inference/busy"])]
    assert logged(metrics, row(1, loss=1, step=70)) == [(70, ["loss", "step"])]
    assert logged(metrics, row(2, **busy)) == [(70, ["inference/busy"])]
    assert metrics.step_of("inference/picture", 3) == 70
    assert logged(metrics, row(3, **{"batch/size": 8})) == [(3, ["batch/size"])]


def test_a_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    metrics = StepMetrics()
    metrics.define(DefinedMetric("*", "step"))
    for number in range(MAX_WAITING):
        assert logged(metrics, row(number, a=1)) == []
    assert len(logged(metrics, row(MAX_WAITING, a=1))) == MAX_WAITING + 1
    assert logged(metrics, row(5, a=1)) == []
    now += 1 + MAX_WAIT_S
    assert logged(metrics, row(6, a=1)) == [(5, ["a"]), (6, ["a"])]


def test_a_wait_has_an_end_beside_rows_that_need_not_wait() -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("val/*", "val/step"))
    found = [logged(metrics, row(at, loss=1.0, **{"val/acc": 2.0})) for at in range(MAX_WAITING + 2)]
    assert found[MAX_WAITING - 1] == [(MAX_WAITING - 1, ["loss"])]
    assert found[MAX_WAITING][0] == (0, ["val/acc"])
    assert len(found[MAX_WAITING]) == MAX_WAITING + 2
    assert sum(map(len, found)) + len(metrics.rest()) == 2 * len(found)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "seven", None])
def test_a_step_metric_that_is_no_number_is_none(odd: object) -> None:
    metrics = StepMetrics()
    metrics.define(DefinedMetric("*", "step"))
    metrics.take({"step": odd})
    assert metrics.step_of("a", 4) == 4
