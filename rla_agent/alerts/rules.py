"""Which configurations have alerts, kept in step with their files.

A run's rules are those of its own `rla_config.yaml` and those of the agent's (`--config`). Files are
read when a run names them and looked at again each LOOK_AGAIN_S. A file that cannot be read or has
faults keeps what it said before; `problems` says why. Volume threads ask, the desk's thread looks;
the reading is done in a thread of its own (config_reader), and a page that is not read in time is
`unread`, without rules, until `take_late` finds that it was.
"""

from __future__ import annotations

import fnmatch
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rla_agent.alerts.alert import rule_id
from rla_agent.alerts.watch import Watch
from rla_agent.model.opening import StreamOpening
from rla_agent.store.config_reader import ConfigReader, Reading
from rla_client.config.alerts import METRICS, AlertRule, Alerts, Channel

LOOK_AGAIN_S = 5.0
MAX_CONFIGS = 1000  # the least lately named is forgotten


@dataclass(frozen=True, slots=True)
class Page:
    """What one configuration says.

    Attributes:
        alerts: its section; empty without one.
        changed: when the file changed that was read (see `Reading`), -1 where there is none.
        problem: why the file as it is now is not used.
        foreign: why it may not name commands, empty when it may.
        real: path without links.
        unread: nobody knows yet what the file says.
    """

    alerts: Alerts
    changed: int = -1
    problem: str = ""
    foreign: str = ""
    real: str = ""
    unread: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and where it stands."""

    name: str
    config: str
    rule: AlertRule


class Book:
    """All configurations that were named so far."""

    def __init__(self, own: Path | None, reader: ConfigReader) -> None:
        self._own = None if own is None else os.path.abspath(own)
        self._reader = reader
        self._pages: dict[str, Page] = {}
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._unread: set[str] = set()
        self.version = 0  # grows when a page changes
        if self._own is not None:
            self.page(self._own)

    def page(self, config: str) -> Page:
        """What a configuration says; read now if nobody named it before."""
        with self._lock:
            known = self._pages.get(config)
        return self._take(config, self._reader.reading(config)) if known is None else known

    def unread(self, config: str | None) -> bool:
        """Whether nobody knows yet what a configuration says."""
        return config is not None and self.page(config).unread

    def look(self, now: float) -> None:
        """Read again what changed; at most each LOOK_AGAIN_S of a steady clock."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_AGAIN_S
        pages = self._all_pages()
        self._reader.look([config for config, _ in pages])
        for config, page in pages:
            self._take_new(config, page)

    def take_late(self) -> bool:
        """Take up what could not be read in time and was read since; whether there was any. Never waits."""
        taken = False
        for config in list(self._unread):
            with self._lock:
                page = self._pages.get(config)
            if page is None:
                self._unread.discard(config)
            else:
                taken |= self._take_new(config, page)
        return taken

    @property
    def configs(self) -> list[str]:
        """Paths of the configurations."""
        with self._lock:
            return list(self._pages)

    @property
    def any_rules(self) -> bool:
        """Whether some configuration has a rule."""
        return any(page.alerts.rules for _, page in self._all_pages())

    def rules(self, config: str | None) -> Iterator[Rule]:
        """Rules for a run with this configuration, the agent's own first."""
        for path in (self._own, None if config is None or self.concerns_all(config) else config):
            if path is not None:
                for rule in self.page(path).alerts.rules:
                    yield Rule(rule_id(path, rule), path, rule)

    def all_rules(self) -> Iterator[Rule]:
        """Every rule of every configuration."""
        for config in self.configs:
            for rule in self.page(config).alerts.rules:
                yield Rule(rule_id(config, rule), config, rule)

    def concerns_all(self, config: str) -> bool:
        """Whether a configuration is the agent's own, also under another name."""
        if self._own is None or config == self._own:
            return config == self._own
        real = self.page(config).real
        return bool(real) and real == self.page(self._own).real

    def channel(self, config: str, name: str) -> tuple[Channel | None, str]:
        """A channel, and why it may not be used."""
        page = self.page(config)
        found = next((channel for channel in page.alerts.channels if channel.name == name), None)
        return found, page.foreign if found is not None and found.kind == "command" else ""

    def watch(self, opening: StreamOpening) -> Watch | None:
        """The metric rules for a stream, None without any."""
        rules = [
            (known.name, known.config, known.rule)
            for known in self.rules(opening.config)
            if known.rule.when[0] in METRICS and fnmatch.fnmatchcase(opening.table, known.rule.table)
        ]
        return Watch(rules) if rules else None

    def problems(self) -> dict[str, str]:
        """Config → why its alerts are not as the file says now."""
        return {config: page.problem for config, page in self._all_pages() if page.problem}

    def _all_pages(self) -> list[tuple[str, Page]]:
        with self._lock:
            return list(self._pages.items())

    def _take_new(self, config: str, page: Page) -> bool:
        found = self._reader.known(config)
        if found is None:
            return False
        other_hands = found.config is not None and bool(found.foreign) != bool(page.foreign)
        if not (page.unread or other_hands or found.changed != page.changed):
            return False
        self._take(config, found)
        return True

    def _take(self, config: str, found: Reading | None) -> Page:
        with self._lock:
            former = self._pages.pop(config, None)
            page = self._pages[config] = _page(config, found, former)
            while len(self._pages) > MAX_CONFIGS:
                del self._pages[next(path for path in self._pages if path != self._own)]
            (self._unread.add if page.unread else self._unread.discard)(config)
            if former is not None and former.alerts != page.alerts:
                self.version += 1
        return page


def _page(config: str, found: Reading | None, former: Page | None) -> Page:
    """What a reading says; with faults, or when the file is gone, what it said before stays."""
    if found is None:
        return Page(Alerts(), unread=True) if former is None else former
    if found.config is not None:
        alerts = found.config.agent.alerts or Alerts()
        foreign = found.foreign and (
            f"{config} can be written by others, so the agent runs no command that it names: {found.foreign}"
        )
        return Page(alerts, found.changed, "", foreign, found.real)
    kept, unsafe = (Alerts(), "") if former is None else (former.alerts, former.foreign)
    told = "; ".join(found.faults) if kept.rules or found.changed != -1 else ""
    return Page(kept, found.changed, told, unsafe, found.real)
