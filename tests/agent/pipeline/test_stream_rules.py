"""Rules that come, change and go while a stream is taken in."""

from __future__ import annotations

from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_agent.alerts.metric_watch import MetricWatch
from rla_agent.model.records import Batch, Record, Row
from rla_agent.pipeline.stream_rules import StreamRules
from rla_client.config.alerts import AlertRule


def rules(*names: str) -> MetricWatch:
    """Each fires at the second of two rows with a NaN."""
    one = AlertRule(("nan",), ("mail",), rows=2)
    return MetricWatch(ConfiguredRule(name, "/c.yaml", one) for name in names)


def nans(count: int) -> Batch:
    rows = [Record(10 * n + 10, Row(n, 1.5, {"a": float("nan")}, None)) for n in range(count)]
    return Batch(1, 0, 10 * count, rows)


def fired(watch: StreamRules) -> list[str]:
    return [firing.rule for firing in watch.firings]


def test_changed_rules_go_on_where_the_former_ones_stand() -> None:
    watch = StreamRules()
    watch.renew(rules("first"), 1, keep=False)
    watch.take(nans(1))
    watch.renew(rules("first", "second"), 2, keep=False)
    watch.take(nans(1))
    assert fired(watch) == ["first"], "the second has seen one row alone"
    watch.renew(rules("second"), 3, keep=False)
    assert fired(watch) == ["first"], "no commit has it yet"
    watch.firings_stored()
    watch.take(nans(1))
    assert fired(watch) == ["second"]


def test_a_stored_state_waits_for_rules_that_cannot_be_read_yet() -> None:
    before = StreamRules()
    before.renew(rules("first"), 1, keep=False)
    before.take(nans(1))
    after = StreamRules()
    after.restore(before.state())
    after.renew(None, 1, keep=True)
    after.take(nans(1))
    assert after.state() == before.state()
    after.renew(rules("first"), 2, keep=False)
    after.take(nans(1))
    assert fired(after) == ["first"]


def test_the_state_of_rules_that_are_gone_is_dropped() -> None:
    watch = StreamRules()
    watch.restore({"first": [0, {"a": 1}]})
    watch.renew(None, 1, keep=False)
    assert watch.state() is None


def test_without_rules_nothing_is_watched() -> None:
    watch = StreamRules()
    watch.renew(rules("first"), 1, keep=False)
    watch.end()
    watch.take(nans(3))
    assert (watch.rules, list(watch.firings)) == (None, [])
