"""Evaluation of metric rules over one stream's rows.

It does no input or output: batches in, firings out. A metric rule fires when its condition has held in a
column for `rows` consecutive rows, and again only after a row in which it did not hold there. Each column is
counted separately, and rows without it change nothing. The state is stored with the stream's position, in the
same transaction as the firings, so that after a kill the replayed rows give the same firings again and none
twice.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_agent.model.records import Batch, Mark, Record, Row
from rla_agent.pipeline.stream_rules import MetricRules
from rla_client.config.alerts import MESSAGE
from rla_client.contract.spool.protocol import ALERT_MARK

MAX_NAMED = 5  # columns that one firing names
MAX_COUNTED = 256  # columns of a rule that are beyond at the same time, the latest: stored at each commit
MAX_KNOWN_KEYS = 1 << 17  # column names whose match with a glob is cached; then the cache is cleared
MAX_WAITING = 1000  # firings of one commit; further ones add no information
_GLOB = frozenset("*?[")


class Firing(NamedTuple):
    """A rule's condition came true.

    Attributes:
        number: segment of the row.
        offset: byte after it.
        rule: id of the rule.
        fields: `config` (where the rule stands), `metrics` (name → value, some of them), `time_step`,
            `timestamp`; of a message of the script also `title` and `text`.
    """

    number: int
    offset: int
    rule: str
    fields: dict[str, Any]


class _RuleState:
    """State of one rule."""

    def __init__(self, known: ConfiguredRule) -> None:
        self.known = known
        self.rule = known.rule
        self.counts: dict[str, int] = {}  # column → consecutive rows, up to the rule's number, which fires
        self.ever = False
        self._exact = not _GLOB & set(self.rule.metric)
        self._matches: dict[str, bool] = {}

    def look(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The columns that fulfil the condition."""
        rule = self.rule
        if rule.metric == "*":
            named: Mapping[str, Any] = values
        elif self._exact:
            if rule.metric not in values:
                return {}
            named = {rule.metric: values[rule.metric]}
        else:
            named = {key: value for key, value in values.items() if self._is_named(key)}
        event = rule.when[0]
        if event == "nan":
            return {key: value for key, value in named.items() if value != value}  # noqa: PLR0124 - NaN alone
        numbers = {k: v for k, v in named.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
        if event == "above":
            return {key: value for key, value in numbers.items() if value > rule.value}
        return {key: value for key, value in numbers.items() if value < rule.value}

    def _is_named(self, key: str) -> bool:
        known = self._matches.get(key)
        if known is None:
            if len(self._matches) >= MAX_KNOWN_KEYS:
                self._matches.clear()
            known = self._matches[key] = fnmatch.fnmatchcase(key, self.rule.metric)
        return known

    def fires(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        """Take one row; returns the columns when the rule fires."""
        beyond, counts, rows = self.look(values), self.counts, self.rule.rows
        if not beyond and not counts:
            return None
        for key in [key for key in counts if key in values and key not in beyond]:
            del counts[key]
        due = []
        for key in beyond:
            count = counts.get(key, 0) + 1
            if count == 1 and len(counts) >= MAX_COUNTED:
                del counts[next(iter(counts))]
            counts[key] = min(count, rows)
            if count == rows:
                due.append(key)
        if not due or (self.rule.once and self.ever):
            return None
        self.ever = True
        return {key: beyond[key] for key in due[:MAX_NAMED]}


class MetricWatch:
    """The rules of one stream."""

    def __init__(self, rules: Iterable[ConfiguredRule]) -> None:
        self.firings: list[Firing] = []
        self._tracked: list[_RuleState] = []
        self._messages: list[ConfiguredRule] = []
        for rule in rules:
            if rule.rule.when[0] == MESSAGE:
                self._messages.append(rule)
            else:
                self._tracked.append(_RuleState(rule))

    def take(self, batch: Batch) -> None:
        """Evaluate the rows of a batch."""
        for record in batch.records:
            row = record.content
            if type(row) is not Row:
                if type(row) is Mark and row.name == ALERT_MARK and self._messages:
                    self._tell(batch.number, record, row.data)
                continue
            for tracked in self._tracked:
                beyond = tracked.fires(row.values)
                if beyond is not None and len(self.firings) < MAX_WAITING:
                    fields = {
                        "config": tracked.known.config,
                        "metrics": _plain(beyond),
                        "time_step": row.step,
                        "timestamp": row.timestamp,
                    }
                    self.firings.append(Firing(batch.number, record.end, tracked.known.name, fields))

    def _tell(self, number: int, record: Record, data: object) -> None:
        if not isinstance(data, dict) or len(self.firings) >= MAX_WAITING:
            return
        message: dict[str, Any] = {
            "metrics": {},
            "title": str(data.get("title") or ""),
            "text": str(data.get("text") or ""),
            "time_step": _finite(data.get("time_step")),
            "timestamp": _finite(data.get("timestamp")),
        }
        self.firings += [
            Firing(number, record.end, rule.name, {"config": rule.config, **message})
            for rule in self._messages
        ]

    def state(self) -> dict[str, Any]:
        """Durable form: rule id → ever fired, {column: consecutive rows}; idle rules are left out."""
        return {
            tracked.known.name: [int(tracked.ever), dict(tracked.counts)]
            for tracked in self._tracked
            if tracked.counts or tracked.ever
        }

    def firings_stored(self) -> None:
        """Clear firings that a commit has stored."""
        self.firings.clear()

    def take_over(self, former: MetricRules) -> None:
        """Go on where other rules of the same stream stand; their firings are not stored yet."""
        self.restore(former.state())
        self.firings = former.firings

    def restore(self, state: object) -> None:
        """Continue from a stored `state`; rules that are not in it start fresh."""
        if not isinstance(state, dict):
            return
        for tracked in self._tracked:
            match state.get(tracked.known.name):
                case [int(ever), dict(counts)]:
                    tracked.ever = bool(ever)
                    tracked.counts = {key: count for key, count in counts.items() if isinstance(count, int)}
                case [int(), int(), int(ever)]:  # of releases that counted the columns together
                    tracked.ever = bool(ever)


def _finite(value: object) -> int | float:
    return value if isinstance(value, int | float) and abs(value) < float("inf") else 0


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as JSON has them; NaN and infinities as text."""
    return {
        key: value if isinstance(value, int) or abs(value) < float("inf") else repr(float(value))
        for key, value in values.items()
    }
