"""Configuration files with alert rules.

A run's rules are those of its own `rla_config.yaml` and those of the agent's (`--config`). Files are read
when a run names them and checked again each LOOK_AGAIN_S. A file that cannot be read or has faults keeps its
former rules; `problems` says why. Volume threads query, the dispatcher's thread checks; the reading is done
in a thread of its own (store/config_reader.py), and a file that is not read in time is `unread`, without
rules, until `take_late` gets its content.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rla_agent.alerts.configured_rule import ConfiguredRule
from rla_agent.alerts.metric_watch import MetricWatch
from rla_agent.store.config_reader import WAIT_S, Changed, ConfigReader, Reading
from rla_client.config.alerts import Alerts, Channel
from rla_client.contract.spool.opening import Opening

LOOK_AGAIN_S = 5.0
MAX_CONFIGS = 1000  # the least recently named is forgotten


@dataclass(frozen=True, slots=True)
class RuleFile:
    """Rules of one configuration file.

    Attributes:
        alerts: its section; empty without one.
        changed: of the file that was read (see `Reading`).
        problem: why the present content is not used.
        foreign: why it may not name commands, empty when it may.
        real: path without links.
        unread: the file was not read so far.
    """

    alerts: Alerts
    changed: Changed = None
    problem: str = ""
    foreign: str = ""
    real: str = ""
    unread: bool = False


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
        """Rules of a configuration; read now if it is new."""
        with self._lock:
            known = self._rule_files.get(config)
        return self._take(config, self._reader.reading(config)) if known is None else known

    def unread(self, config: str | None) -> bool:
        """Whether a configuration was not read so far."""
        return config is not None and self.rule_file(config).unread

    def look(self, now: float, wait_s: float = WAIT_S) -> None:
        """Read changed files again; at most each LOOK_AGAIN_S of a steady clock, waiting `wait_s` at most."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_AGAIN_S
        rule_files = self._all_rule_files()
        self._reader.look([config for config, _ in rule_files], wait_s)
        for config, rule_file in rule_files:
            self._take_new(config, rule_file)

    def take_late(self) -> bool:
        """Take files that were read late; whether there were any. Never waits."""
        taken = False
        for config, rule_file in self._all_rule_files():
            if rule_file.unread:
                taken |= self._take_new(config, rule_file)
        return taken

    @property
    def any_rules(self) -> bool:
        """Whether some configuration has a rule."""
        return any(rule_file.alerts.rules for _, rule_file in self._all_rule_files())

    def rules(self, config: str | None) -> Iterator[ConfiguredRule]:
        """Rules for a run with this configuration, the agent's own first."""
        for path in (self._own, None if config is None or self.concerns_all(config) else config):
            if path is not None:
                yield from self._rules_in(path)

    def all_rules(self) -> Iterator[ConfiguredRule]:
        """Every rule of every configuration."""
        for config, _ in self._all_rule_files():
            yield from self._rules_in(config)

    def _rules_in(self, config: str) -> Iterator[ConfiguredRule]:
        for rule in self.rule_file(config).alerts.rules:
            digest = hashlib.sha256(repr((config, rule)).encode("utf-8", "surrogateescape")).hexdigest()
            yield ConfiguredRule(digest[:16], config, rule)

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

    def watch(self, opening: Opening) -> MetricWatch | None:
        """The rules about rows and messages of a stream, None without any."""
        rules = [
            rule
            for rule in self.rules(opening.config)
            if rule.of_rows and fnmatch.fnmatchcase(opening.table, rule.rule.table)
        ]
        return MetricWatch(rules) if rules else None

    def problems(self) -> dict[str, str]:
        """Config → why its present alerts are not in force."""
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
    """Rules of a reading; with faults, or when the file is gone, the former ones stay."""
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
