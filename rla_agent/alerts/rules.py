"""The rules of alerts: which configurations have some, when those about a run's rows fire, what they tell.

A run's rules are those of its own `rla_config.yaml` and those of the agent's (`--config`). Files are
read when a run names them and looked at again each LOOK_AGAIN_S. A file that cannot be read or has
faults keeps what it said before; `problems` says why. Volume threads ask, the dispatcher's thread looks;
the reading is done in a thread of its own (config_reader), and a file that is not read in time is
`unread`, without rules, until `take_late` finds that it was.

A `Watch` applies the rules to one stream's rows, without input or output: batches in, firings out. A metric
rule fires when its condition has held in a column for `rows` rows in a row, and again only after a row in
which it did not hold there. Each column counts by itself, and rows without it change nothing. The state is
stored with the stream's position, in the same transaction as the firings, so that after a kill the replayed
rows give the same firings again and none twice.

An `Alert` is what a rule tells, as plain data with its words.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from rla_agent.model.ingest import Batch, Mark, Record, Row
from rla_agent.store.config_reader import WAIT_S, Changed, ConfigReader, Reading
from rla_client.config.alerts import MESSAGE, METRICS, AlertRule, Alerts, Channel
from rla_client.contract.run_index import RunIndex
from rla_client.contract.spool.opening import Opening
from rla_client.contract.spool.protocol import ALERT_MARK
from rla_client.contract.text.terminal_text import printable

LOOK_AGAIN_S = 5.0
MAX_CONFIGS = 1000  # the least lately named is forgotten
MAX_NAMED = 5  # columns that one firing names
MAX_COUNTED = 256  # columns of a rule that are beyond at the same time, the latest: stored at each commit
MAX_KNOWN_KEYS = 1 << 17  # column names whose match with a glob is remembered; then begun anew
MAX_WAITING = 1000  # firings of one commit; the first ones tell what there is to tell
MAX_TITLE_CHARS = 200
MAX_TEXT_CHARS = 2000
_GLOB = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class RuleFile:
    """What one configuration says.

    Attributes:
        alerts: its section; empty without one.
        changed: of the file that was read (see `Reading`).
        problem: why the file as it is now is not used.
        foreign: why it may not name commands, empty when it may.
        real: path without links.
        unread: nobody knows yet what the file says.
    """

    alerts: Alerts
    changed: Changed = None
    problem: str = ""
    foreign: str = ""
    real: str = ""
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, the configuration that it stands in, and an id that it has as long as it stays as it is."""

    name: str
    config: str
    rule: AlertRule

    @property
    def of_rows(self) -> bool:
        """Whether it is about what a stream brings."""
        return self.rule.when[0] in {*METRICS, MESSAGE}


class RuleSet:
    """All configurations that were named so far."""

    def __init__(self, own: Path | None, reader: ConfigReader) -> None:
        self._own = None if own is None else os.path.abspath(own)
        self._reader = reader
        self._rule_files: dict[str, RuleFile] = {}
        self._lock = threading.Lock()
        self._next_look = 0.0
        self.version = 0  # grows when a file changes
        if self._own is not None:
            self.rule_file(self._own)

    def rule_file(self, config: str) -> RuleFile:
        """What a configuration says; read now if nobody named it before."""
        with self._lock:
            known = self._rule_files.get(config)
        return self._take(config, self._reader.reading(config)) if known is None else known

    def unread(self, config: str | None) -> bool:
        """Whether nobody knows yet what a configuration says."""
        return config is not None and self.rule_file(config).unread

    def look(self, now: float, wait_s: float = WAIT_S) -> None:
        """Read again what changed; at most each LOOK_AGAIN_S of a steady clock, waiting `wait_s` at most."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_AGAIN_S
        rule_files = self._all_rule_files()
        self._reader.look([config for config, _ in rule_files], wait_s)
        for config, rule_file in rule_files:
            self._take_new(config, rule_file)

    def take_late(self) -> bool:
        """Take up what could not be read in time and was read since; whether there was any. Never waits."""
        taken = False
        for config, rule_file in self._all_rule_files():
            if rule_file.unread:
                taken |= self._take_new(config, rule_file)
        return taken

    @property
    def any_rules(self) -> bool:
        """Whether some configuration has a rule."""
        return any(rule_file.alerts.rules for _, rule_file in self._all_rule_files())

    def rules(self, config: str | None) -> Iterator[Rule]:
        """Rules for a run with this configuration, the agent's own first."""
        for path in (self._own, None if config is None or self.concerns_all(config) else config):
            if path is not None:
                yield from self._rules_in(path)

    def all_rules(self) -> Iterator[Rule]:
        """Every rule of every configuration."""
        for config, _ in self._all_rule_files():
            yield from self._rules_in(config)

    def _rules_in(self, config: str) -> Iterator[Rule]:
        for rule in self.rule_file(config).alerts.rules:
            digest = hashlib.sha256(repr((config, rule)).encode("utf-8", "surrogateescape")).hexdigest()
            yield Rule(digest[:16], config, rule)

    def concerns_all(self, config: str) -> bool:
        """Whether a configuration is the agent's own, also under another name."""
        if self._own is None or config == self._own:
            return config == self._own
        real = self.rule_file(config).real
        return bool(real) and real == self.rule_file(self._own).real

    def channel(self, config: str, name: str) -> tuple[Channel | None, str]:
        """A channel, and why it may not be used."""
        rule_file = self.rule_file(config)
        found = next((channel for channel in rule_file.alerts.channels if channel.name == name), None)
        return found, rule_file.foreign if found is not None and found.kind == "command" else ""

    def watch(self, opening: Opening) -> Watch | None:
        """The rules about what a stream brings, None without any."""
        rules = [
            rule
            for rule in self.rules(opening.config)
            if rule.of_rows and fnmatch.fnmatchcase(opening.table, rule.rule.table)
        ]
        return Watch(rules) if rules else None

    def problems(self) -> dict[str, str]:
        """Config → why its alerts are not as the file says now."""
        return {
            config: rule_file.problem for config, rule_file in self._all_rule_files() if rule_file.problem
        }

    def _all_rule_files(self) -> list[tuple[str, RuleFile]]:
        with self._lock:
            return list(self._rule_files.items())

    def _take_new(self, config: str, rule_file: RuleFile) -> bool:
        found = self._reader.known(config)
        if found is None:
            return False
        other_hands = found.config is not None and bool(found.foreign) != bool(rule_file.foreign)
        if not (rule_file.unread or other_hands or found.changed != rule_file.changed):
            return False
        self._take(config, found)
        return True

    def _take(self, config: str, found: Reading | None) -> RuleFile:
        with self._lock:
            former = self._rule_files.pop(config, None)
            rule_file = self._rule_files[config] = _rule_file(config, found, former)
            while len(self._rule_files) > MAX_CONFIGS:
                del self._rule_files[next(path for path in self._rule_files if path != self._own)]
            if former is not None and former.alerts != rule_file.alerts:
                self.version += 1
        return rule_file


def _rule_file(config: str, found: Reading | None, former: RuleFile | None) -> RuleFile:
    """What a reading says; with faults, or when the file is gone, what it said before stays."""
    if found is None:
        return RuleFile(Alerts(), unread=True) if former is None else former
    if found.config is not None:
        alerts = found.config.agent.alerts or Alerts()
        foreign = found.foreign and (
            f"{config} can be written by others, so the agent runs no command that it names: {found.foreign}"
        )
        return RuleFile(alerts, found.changed, "", foreign, found.real)
    kept, unsafe = (Alerts(), "") if former is None else (former.alerts, former.foreign)
    told = "; ".join(found.faults) if kept.rules or found.changed is not None else ""
    return RuleFile(kept, found.changed, told, unsafe, found.real)


# -- rules about rows --------------------------------------------------------------------------


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


class _Tracked:
    """One rule and how far it is."""

    def __init__(self, known: Rule) -> None:
        self.known = known
        self.rule = known.rule
        self.counts: dict[str, int] = {}  # column → rows in a row, up to the rule's: then it is told
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
        """Take one row; the columns to tell of when the rule fires."""
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


class Watch:
    """The rules that hold for one stream."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.firings: list[Firing] = []
        self._tracked: list[_Tracked] = []
        self._messages: list[Rule] = []
        for rule in rules:
            if rule.rule.when[0] == MESSAGE:
                self._messages.append(rule)
            else:
                self._tracked.append(_Tracked(rule))

    def take(self, batch: Batch) -> None:
        """Look at the rows of a batch that the stream takes in."""
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
        """Durable form: rule id → ever told, {column: rows in a row}; rules at rest are left out."""
        return {
            tracked.known.name: [int(tracked.ever), dict(tracked.counts)]
            for tracked in self._tracked
            if tracked.counts or tracked.ever
        }

    def restore(self, state: object) -> None:
        """Go on from what `state` gave; rules that are not in it begin anew."""
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


# -- alerts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a rule tells of.

    Attributes:
        key: names the event; the same event never has two alerts.
        when: event, one of `rla_client.config.alerts.EVENTS`, or test.
        title: one line.
        text: the details, a few lines.
        at: Unix seconds of the event.
        host: of this agent.
        rule: id of the rule.
        run: id of the run, empty for events of the machine.
        details: plain data for programs.
    """

    key: str
    when: str
    title: str
    text: str
    at: float
    host: str
    rule: str
    run: str
    details: dict[str, Any]

    def to_plain(self, held: int = 0) -> dict[str, Any]:
        """Content of the webhook's and the command's JSON.

        Args:
            held: alerts like this one that were not sent since the last one, to stay within interval_s.
        """
        text = self.text
        if held:
            text += f"\n{held} more like this one came since the last message."
        return {
            "id": hashlib.sha256(self.key.encode("utf-8", "surrogateescape")).hexdigest()[:32],
            "event": self.when,
            "title": printable(self.title)[:MAX_TITLE_CHARS],
            "text": "\n".join(printable(line) for line in text.split("\n"))[:MAX_TEXT_CHARS],
            "time": self.at,
            "host": self.host,
            "held_back": held,
            **self.details,
        }


def of_run(rule: str, plain: Mapping[str, Any], host: str) -> Alert:
    """A run came into a state; `plain` is its record as agent.db has it."""
    state, at = str(plain["state"]), float(plain["closed"] or plain["updated"])
    lines = [f"reason: {plain['reason']}"] if plain.get("reason") else []
    key = f"{rule}:{plain['run_id']}:{state}:{plain['closed'] or plain['last_row'] or plain['opened']}"
    text = "\n".join([*lines, *_run_lines(plain)])
    title = f"{state}: {_run_name(plain)}"
    return Alert(key, state, title, text, at, host, rule, plain["run_id"], {"run": _run_fields(plain)})


def of_metric(
    known: Rule,
    stream: str,
    firing: Mapping[str, Any],
    plain: Mapping[str, Any],
    host: str,
) -> Alert:
    """A metric rule fired, or the script asked to tell something.

    `firing` has `number`, `offset` and the fields of `Firing`; `plain` is the run's record.
    """
    rule = known.rule
    metrics = {str(name): value for name, value in firing["metrics"].items()}
    named = ", ".join(f"{name} = {value}" for name, value in metrics.items())
    event = rule.when[0]
    what = f"NaN in {', '.join(metrics)}" if event == "nan" else f"{named}, {event} {rule.value:g}"
    if event == MESSAGE:
        what = firing["title"]
    rows = f" for {rule.rows} rows" if rule.rows > 1 else ""
    where = "once" if rule.once else f"{stream}:{firing['number']}:{firing['offset']}"
    details = {
        "run": _run_fields(plain),
        "metrics": metrics,
        "time_step": firing["time_step"],
        "threshold": rule.value if event in {"above", "below"} else None,
    }
    said = [firing["text"]] if event == MESSAGE and firing["text"] else []
    text = "\n".join([f"{what}{rows}, at time-step {firing['time_step']:g}", *said, *_run_lines(plain)])
    return Alert(
        f"{known.name}:{plain['run_id']}:{where}", event, f"{what}: {_run_name(plain)}", text,
        float(firing["timestamp"]), host, known.name, plain["run_id"], details,
    )  # fmt: skip


def of_machine(rule: str, event: str, subject: str, text: str, now: float, host: str) -> Alert:
    """A disk is low, or replication has stopped; `subject` names which."""
    words = {"disk_low": "disk low", "replication_parked": "replication parked"}.get(event, event)
    key = f"{rule}:{event}:{subject}:{now:.0f}"
    return Alert(key, event, f"{words} on {host}: {subject}", text, now, host, rule, "", {"subject": subject})


def of_test(now: float, host: str) -> Alert:
    """What `rla-agent alerts test` sends."""
    text = "If you can read this, alerts reach you by this channel."
    return Alert(f"test:{now}", "test", f"test message of rla-agent on {host}", text, now, host, "", "", {})


def _run_fields(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What programs get of a run."""
    names = (
        "run_id", "table", "index", "root", "log_folder", "host", "user", "pid", "state", "reason",
        "exit_code", "signal", "opened", "last_row", "closed", "time_step", "rows",
    )  # fmt: skip
    return {name: plain.get(name) for name in names}


def _run_name(plain: Mapping[str, Any]) -> str:
    """Table, time and what is tracked, for a title."""
    if not plain["table"]:
        return str(plain["root"])
    index = RunIndex.parse(str(plain["index"]))
    if index is None:
        return f"{plain['table']}/{plain['index']}"
    return f"{plain['table']} {index.record_date[:19]} {index.info}"


def _run_lines(plain: Mapping[str, Any]) -> list[str]:
    step = plain.get("time_step")
    lines = [f"run: {_run_name(plain)}", f"user {plain['user']}, process {plain['pid']} on {plain['host']}"]
    if step is not None:
        lines.append(f"last time-step {step:g}, {plain['rows']} rows")
    if plain.get("last_row"):
        when = datetime.fromtimestamp(plain["last_row"]).astimezone().isoformat(" ", "seconds")
        lines.append(f"last row {when}")
    return [*lines, f"folder: {plain['log_folder']}"]
