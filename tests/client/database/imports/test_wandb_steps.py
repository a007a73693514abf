"""Where wandb's rows go."""

from __future__ import annotations

import pytest

from rla_client.database.imports.wandb_steps import HistoryRow, MetricRule, placed


def places(rules: list[MetricRule], *rows: dict[str, object]) -> list[tuple[str, float]]:
    history = [HistoryRow(values, number, 0.0) for number, values in enumerate(rows)]
    return [(name, step) for name, step, _, _ in placed(history, rules)]


def test_without_rules_the_steps_are_wandbs() -> None:
    assert places([], {"a": 1}, {"b": 2}) == [("a", 0), ("b", 1)]


def test_rows_are_at_their_step_metric() -> None:
    rules = [MetricRule("*", "step"), MetricRule("eval_*", "epoch"), MetricRule("eval_x", "step")]
    assert places(
        rules,
        {"early": 1},
        {"loss": 1, "step": 30},
        {"late": 1},
        {"eval_loss": 1, "epoch": 2},
        {"eval_x": 1},
        {"eval_loss": 1, "loss": 1},
    ) == [
        ("early", 30),
        ("loss", 30),
        ("step", 30),
        ("late", 30),
        ("eval_loss", 2),
        ("epoch", 2),
        ("eval_x", 30),
        ("eval_loss", 5),  # of two step metrics: wandb's own
        ("loss", 5),
    ]


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "3", None, [1]])
def test_a_step_that_is_no_number(odd: object) -> None:
    assert places([MetricRule("*", "step")], {"a": 1, "step": odd}) == [("a", 0), ("step", 0)]
