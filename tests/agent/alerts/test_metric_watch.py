"""Metric rules over rows: when they fire, and what a restart keeps."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_agent.alerts.metric_watch import MAX_COUNTED, MAX_NAMED, MetricWatch
from rla_agent.model.records import Batch, Mark, Record, Row, Text
from rla_client.config.alerts import AlertRule

NAN, INF = math.nan, math.inf


def rule(when: str, **more: Any) -> AlertRule:
    return AlertRule((when,), ("mail",), **more)


def watch(*rules: AlertRule) -> MetricWatch:
    return MetricWatch(ConfiguredRule(f"r{number}", "/c.yaml", one) for number, one in enumerate(rules))


def batch(*rows: dict[str, Any], start: int = 0) -> Batch:
    records = [Record(start + 10 * (n + 1), Row(start + n, 1.5, row, None)) for n, row in enumerate(rows)]
    return Batch(1, start, start + 10 * len(rows), records)


def fired(found: MetricWatch) -> list[int]:
    """Row numbers from 0."""
    return [firing.offset // 10 - 1 for firing in found.firings]


@pytest.mark.parametrize(
    ("one", "rows", "expected"),
    [
        (rule("nan"), [{"a": 1}, {"a": NAN}, {"a": NAN}, {"a": 1}, {"a": NAN}], [1, 4]),
        (rule("nan", once=True), [{"a": NAN}, {"a": 1}, {"a": NAN}], [0]),
        (rule("nan"), [{"a": INF}, {"a": "nan"}, {"a": None}, {"a": True}], []),
        (rule("nan", metric="loss/*"), [{"other": NAN, "loss/a": 1.0}, {"loss/a": NAN}], [1]),
        (rule("nan", metric="a"), [{"b": NAN}, {"a": NAN}, {"b": 1}, {"a": NAN}], [1]),
        (rule("above", metric="a", value=2), [{"a": 2}, {"a": 3}, {"a": 4}, {"a": 1}, {"a": INF}], [1, 4]),
        (rule("above", metric="a", value=2, rows=3), [{"a": 3}, {"a": 3}, {"a": 1}, *[{"a": 3}] * 4], [5]),
        (rule("above", metric="a", value=0), [{"a": True}, {"a": "9"}, {"a": 1 << 80}], [2]),
        (rule("below", metric="a", value=0), [{"a": NAN}, {"a": -INF}], [1]),
        (rule("below", metric="a", value=0, rows=2), [{"a": -1}, {"b": 1}, {"a": -1}], [2]),
        (rule("above", metric="g[12]/*", value=0), [{"g3/a": 1}, {"g2/a": 1}], [1]),
        (rule("nan"), [{"a": NAN}, {"b": 1}, {"a": NAN}], [0]),
        (rule("nan"), [{"a": NAN}, {"a": NAN, "b": NAN}, {"a": 1, "b": NAN}, {"a": NAN}], [0, 1, 3]),
        (rule("above", value=2, rows=2), [{"a": 3}, {"b": 1}, {"a": 3}, {"b": 3}, {"b": 3}], [2, 4]),
        (rule("above", value=2, rows=2), [{"a": 3}, {"b": 3}, {"a": 1}, {"b": 1}], []),
    ],
)
def test_when_it_fires(one: AlertRule, rows: list[dict[str, Any]], expected: list[int]) -> None:
    found = watch(one)
    found.take(batch(*rows))
    assert fired(found) == expected


def test_of_very_many_columns_beyond_the_latest_count() -> None:
    found = watch(rule("nan"))
    found.take(batch(*({f"ep{number}": NAN} for number in range(MAX_COUNTED + 3))))
    assert len(found.firings) == MAX_COUNTED + 3
    ((_, counts),) = found.state().values()
    assert len(counts) == MAX_COUNTED


def test_what_a_firing_says() -> None:
    found = watch(rule("nan"), rule("above", metric="a", value=1))
    found.take(Batch(3, 0, 9, [Record(4, Text(1, "x")), Record(9, Row(7.5, 2.5, {"a": 2, "b": NAN}, None))]))
    assert [(f.number, f.offset, f.rule, f.fields) for f in found.firings] == [
        (3, 9, "r0", {"config": "/c.yaml", "metrics": {"b": "nan"}, "time_step": 7.5, "timestamp": 2.5}),
        (3, 9, "r1", {"config": "/c.yaml", "metrics": {"a": 2}, "time_step": 7.5, "timestamp": 2.5}),
    ]
    json.dumps([f.fields for f in found.firings], allow_nan=False)


def test_messages_of_the_script_and_what_is_none() -> None:
    found = watch(rule("message"), rule("nan"))
    marks = [
        Mark("alert", {"title": "half way", "text": "more", "time_step": 3, "timestamp": 2.5}),
        Mark("other", {"title": "half way"}),
        Mark("alert", "half way"),
        Mark("alert", {"title": 7, "time_step": NAN, "timestamp": "soon"}),
    ]
    found.take(Batch(1, 0, 40, [Record(10 * number, mark) for number, mark in enumerate(marks, 1)]))
    assert [
        (one.offset, one.rule, one.fields["title"], one.fields["time_step"]) for one in found.firings
    ] == [
        (10, "r0", "half way", 3),
        (40, "r0", "7", 0),
    ]
    json.dumps([one.fields for one in found.firings], allow_nan=False)
    assert found.state() == {}


def test_wide_rows_are_named_in_part() -> None:
    found = watch(rule("nan"))
    found.take(batch({f"k{n}": NAN for n in range(1000)}))
    assert len(found.firings[0].fields["metrics"]) == MAX_NAMED


def test_a_restart_between_any_two_rows_changes_nothing() -> None:
    """The state is stored as JSON with the position; the replayed rows give the same firings."""
    rules = (
        rule("above", metric="a", value=0, rows=3),
        rule("nan", once=True),
        rule("below", metric="a", value=0),
    )
    values = [1, 1, -1, 1, 1, 1, NAN, NAN, 1, -1, -2, NAN, 1, 1, 1, 1]
    whole = watch(*rules)
    whole.take(batch(*[{"a": value} for value in values]))
    for cut in range(len(values) + 1):
        first, second = watch(*rules), watch(*rules)
        first.take(batch(*[{"a": value} for value in values[:cut]]))
        second.restore(json.loads(json.dumps(first.state())))
        rest = batch(*[{"a": value} for value in values[cut:]], start=10 * cut)
        second.take(Batch(1, rest.start, rest.end, [Record(r.end, r.content) for r in rest.records]))
        assert [f.offset for f in first.firings + second.firings] == [f.offset for f in whole.firings], cut


def test_state_that_is_no_state() -> None:
    states: tuple[object, ...] = (
        None,
        [],
        {"r0": "x"},
        {"r0": [1]},
        {"r0": [1, {"a": "x"}]},
        {"other": [1, {"a": 1}]},
    )
    for state in states:
        found = watch(rule("nan"))
        found.restore(state)
        found.take(batch({"a": NAN}))
        assert fired(found) == [0]


def test_state_of_releases_that_counted_columns_together() -> None:
    found = watch(rule("nan", once=True))
    found.restore({"r0": [1, 1, 1]})
    found.take(batch({"a": NAN}))
    assert fired(found) == []
