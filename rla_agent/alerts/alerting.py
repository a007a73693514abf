"""Alerting, the agent's side of alerts.

    volume thread  metric_watch  metric rules over the rows it takes in anyway; firings are stored with
                                 the positions, in the same transaction (agent.db)
    alerts thread  dispatcher    reads run states and firings from agent.db, looks at disks and
                                 replication; keeps what is to be sent in alerts.db; retries
    couriers       channels      send; one thread for each channel that has something to send

Without a rule there is no dispatcher, no alerts.db and no watch: a stream then costs one comparison a batch.
Ingest, commit, stop and watchdog never wait here for a server or a disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rla_agent.alerts.metric_watch import MetricWatch
from rla_agent.alerts.rule_files import LOOK_AGAIN_S, RuleSet
from rla_agent.pipeline.stream import Stream
from rla_agent.store.agent_db import CommitChanges, FiringRow
from rla_agent.store.config_reader import ConfigReader
from rla_client.contract.agent.places import Places
from rla_client.contract.spool.opening import Opening

POLL_WAIT_S = 0.1  # that the main thread waits for files, each LOOK_AGAIN_S


class Alerting:
    """The agent's side of alerts.

    Args:
        places: of the agent.
        config: the agent's own configuration, whose rules apply to all runs.
        live: returns (stream name, opening) of each stream with a live writer.
        since: Unix seconds of the agent's start.
        reader: of configurations.
    """

    def __init__(
        self,
        places: Places,
        config: Path | None,
        live: Callable[[], list[tuple[str, Opening]]],
        since: float,
        reader: ConfigReader,
    ) -> None:
        self._places = places
        self._live = live
        self._since = since
        self._rule_set = RuleSet(config, reader)
        self._dispatcher: Any = None  # its module is loaded at first use
        self._lock = threading.Lock()
        self._stopped = False
        self._watched = False  # some stream has metric rules

    def start(self) -> None:
        """Begin if the agent's own configuration has rules, or an earlier agent left something."""
        if self._rule_set.any_rules or (self._places.state / "alerts.db").exists():
            self._start_dispatcher()

    def _start_dispatcher_if_due(self) -> None:
        if self._dispatcher is None and self._rule_set.any_rules:
            self._start_dispatcher()

    def _start_dispatcher(self) -> None:
        with self._lock:
            if self._dispatcher is None and not self._stopped:
                from rla_agent.alerts.dispatcher import Dispatcher  # noqa: PLC0415 - smtplib and urllib

                self._dispatcher = Dispatcher(self._places, self._rule_set, self._live, self._since)
                self._dispatcher.start()

    def run_opened(self, stream: Stream) -> None:
        """Apply the rules to a stream that was opened."""
        self._renew(stream)
        self._start_dispatcher_if_due()

    def add_changes(self, streams: Iterable[Stream], changes: CommitChanges) -> list[Stream]:
        """Put firings into a commit, and apply changed rules.

        Returns:
            Streams whose firings are to be cleared when the commit has succeeded.
        """
        if self._rule_set.take_late():
            self._start_dispatcher_if_due()
        version = self._rule_set.version
        if not version and not self._watched:
            return []
        fired: list[Stream] = []
        for stream in streams:
            if stream.watch.version != version:
                self._renew(stream)
            if stream.watch.firings:
                fired.append(stream)
                changes.firings.extend(
                    FiringRow(stream.name, stream.opening.run, *firing) for firing in stream.watch.firings
                )
        return fired

    def _renew(self, stream: Stream) -> None:
        """Have a stream watched by the present rules."""
        version = self._rule_set.version
        rules: MetricWatch | None = self._rule_set.watch(stream.opening)
        self._watched |= rules is not None
        stream.watch.renew(rules, version, keep=self._rule_set.unread(stream.opening.config))

    def poll(self, now: float) -> None:
        """Check, while there is no dispatcher, whether a file without rules has some now."""
        if self._dispatcher is not None:
            return
        self._rule_set.look(now, POLL_WAIT_S)
        if self._rule_set.any_rules:
            self._since = max(self._since, time.time() - 2 * LOOK_AGAIN_S)  # earlier ends are not alerted
            self._start_dispatcher()

    @property
    def waiting(self) -> int:
        """Messages that are not sent yet."""
        return 0 if self._dispatcher is None else int(self._dispatcher.waiting)

    def snapshot(self) -> dict[str, Any]:
        """Plain data for `status`: rules, waiting, channels, recent, problems."""
        dispatcher = self._dispatcher
        view = {"channels": [], "recent": []} if dispatcher is None else dispatcher.view
        problems = [
            {"what": f"alerts of {config}: {why}", "fix": f"rla-agent check-config {config}"}
            for config, why in self._rule_set.problems().items()
        ]
        if dispatcher is not None and dispatcher.fault:
            problems.append({"what": dispatcher.fault, "fix": "see: rla-agent logs"})
        for channel in view["channels"]:
            if channel["error"]:
                waits = (
                    f"{channel['waiting']} wait" if channel["waiting"] else f"{channel['given_up']} given up"
                )
                what = f"alerts by channel {channel['channel']}: {channel['error']} ({waits})"
                fix = f"fix that; to test it: rla-agent alerts test --config {channel['config']}"
                problems.append({"what": what, "fix": fix})
        return {
            "rules": sum(1 for _ in self._rule_set.all_rules()),
            "waiting": self.waiting,
            **view,
            "problems": problems,
        }

    def stop(self, timeout_s: float) -> None:
        """Send deliveries without an attempt so far, and end in time; the next agent sends the rest."""
        with self._lock:
            self._stopped = True
        if self._dispatcher is not None:
            self._dispatcher.stop(timeout_s)
