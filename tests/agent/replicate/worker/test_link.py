"""The threads that send to a master: whatever goes wrong in one, its batch comes back with an error."""

from __future__ import annotations

import queue
from contextlib import closing

import pytest

from rla_agent.replicate.backend.target import BlockedError, LinkError, MissingError, NoRootError, Session
from rla_agent.replicate.worker.link import Batch, BatchOutcome, Confirmed, Link
from rla_client.contract.errors import ConfigError


@pytest.mark.parametrize(
    ("fault", "kind", "why"),
    [
        (ConfigError("~/.ssh/config", ["No closing quotation"]), BlockedError, "No closing quotation"),
        (MissingError("stat", b"x", "gone"), LinkError, "gone"),
        (NoRootError("open", b"", "no root"), BlockedError, "no root"),
        (ZeroDivisionError("by zero"), LinkError, "internal error"),
    ],
)
def test_a_sender_that_cannot_connect_for_an_odd_reason(
    fault: Exception, kind: type[Exception], why: str
) -> None:
    def open_session() -> Session:
        raise fault

    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    with closing(Link(open_session, outcomes, lambda: None, 1)) as link:
        for _ in range(2):  # the thread goes on
            link.give(0, Batch(1, -1, ()))
            outcome = outcomes.get(timeout=10)
            assert isinstance(outcome, BatchOutcome)
            assert isinstance(outcome.error, kind)
            assert why in outcome.error.why
