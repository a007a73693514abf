"""Sender threads of alerts.

Each channel has at most one thread at a time, so a server that hangs blocks its own channel alone. A message
is marked as sent after the other side accepted it: after a kill in between it is sent again, with the same
Message-ID or Idempotency-Key.
"""

from __future__ import annotations

import logging
import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rla_agent.alerts.alert_store import GIVEN_UP, SENT, AlertStore
from rla_agent.alerts.channels import send
from rla_agent.alerts.delivery import GIVE_UP_S, RETRY_MOST_S, Delivery, batches, retry_delay
from rla_agent.alerts.route import Route, SendError
from rla_agent.alerts.rule_files import RuleSet

_log = logging.getLogger("rla_agent.alerts")


@dataclass(frozen=True, slots=True)
class _MessageResult:
    """Result of one message; `given_up`: the last attempt failed."""

    deliveries: list[Delivery]
    error: str = ""
    retry_after_s: float | None = None
    given_up: bool = False


@dataclass(frozen=True, slots=True)
class _Report:
    """Report of a courier.

    Attributes:
        key: configuration and name of its channel.
        file: of alerts.db that the deliveries are numbered in.
        outcomes: of its messages.
    """

    key: tuple[str, str]
    file: int
    outcomes: list[_MessageResult]


class Couriers:
    """Sends due deliveries, and collects their results.

    Everything except its threads belongs to the dispatcher's thread.

    Args:
        rule_set: the rules and channels.
        wake: called when there are results.
    """

    def __init__(self, rule_set: RuleSet, wake: Callable[[], object]) -> None:
        self._rule_set, self._wake = rule_set, wake
        self._host = socket.gethostname() or "localhost"
        self._couriers: dict[tuple[str, str], threading.Thread] = {}
        self._reports: queue.SimpleQueue[_Report] = queue.SimpleQueue()
        self._to_note: list[_Report] = []  # collected results that alerts.db does not have yet

    @property
    def busy(self) -> bool:
        """Whether a courier works, or its results are not stored."""
        return bool(self._couriers)

    def note(self, store: AlertStore, file: int) -> None:
        """Store results in the open transaction; call `noted` once it is committed.

        Args:
            store: the alerts.
            file: counts the files that were alerts.db.
        """
        with suppress(queue.Empty):
            while True:
                self._to_note.append(self._reports.get_nowait())
        for report in self._to_note:
            if report.file == file:  # else the numbers belong to other deliveries
                _note(store, report, time.time())

    def noted(self) -> None:
        """Release the channels of stored results."""
        for report in self._to_note:
            self._couriers.pop(report.key, None)
        self._to_note.clear()

    def send_due(self, store: AlertStore, file: int, *, fresh_only: bool) -> None:
        """Start a courier for each channel with due deliveries; `fresh_only`: without an earlier attempt."""
        now = time.time()
        due: dict[tuple[str, str], list[Delivery]] = {}
        for delivery in store.due(now, now + 2 * RETRY_MOST_S, self._couriers):
            if not (fresh_only and delivery.tries):
                due.setdefault((delivery.config, delivery.channel), []).append(delivery)
        for key, deliveries in due.items():
            if self._rule_set.unread(key[0]):
                continue
            channel, refused = self._rule_set.channel(*key)
            if channel is None:
                numbers = [delivery.number for delivery in deliveries]
                store.done(numbers, GIVEN_UP, "the configuration has no such channel any more", now)
                continue
            route = Route(channel, Path(key[0]).parent, refused)
            courier = threading.Thread(
                target=self._carry,
                args=(key, file, route, batches(deliveries)),
                name="alert-courier",
                daemon=True,
            )
            self._couriers[key] = courier
            courier.start()

    def _carry(self, key: tuple[str, str], file: int, route: Route, messages: list[list[Delivery]]) -> None:
        """Send messages one after the other; a failure ends the round."""
        outcomes: list[_MessageResult] = []
        for deliveries in messages:
            error, retry_after_s = "", None
            try:
                send(route, [delivery.alert for delivery in deliveries], self._host)
            except SendError as refused:
                error, retry_after_s = str(refused), refused.retry_after_s
            except Exception as fault:  # noqa: BLE001 - the top of a thread: one message must not end it
                _log.exception("an alert by channel %s could not be sent", key[1])
                error = f"{type(fault).__name__}: {fault}"
            given_up = bool(error) and time.time() - min(one.made for one in deliveries) > GIVE_UP_S
            outcomes.append(_MessageResult(deliveries, error, retry_after_s, given_up))
            if given_up:
                _log.error("%d alert(s) given up, channel %s: %s", len(deliveries), key[1], error)
            elif error:
                _log.warning("alert not sent, channel %s: %s", key[1], error)
            else:
                _log.info("%d alert(s) sent by channel %s", len(deliveries), key[1])
            if error:
                break
        self._reports.put(_Report(key, file, outcomes))
        self._wake()


def _note(store: AlertStore, report: _Report, now: float) -> None:
    """Store a courier's report."""
    for outcome in report.outcomes:
        numbers = [delivery.number for delivery in outcome.deliveries]
        if not outcome.error or outcome.given_up:
            store.done(numbers, GIVEN_UP if outcome.given_up else SENT, outcome.error, now)
        else:
            tries = max(delivery.tries for delivery in outcome.deliveries) + 1
            next_at = now + retry_delay(tries, outcome.retry_after_s, random.random())  # noqa: S311
            store.failed(*report.key, numbers, outcome.error, next_at)
