"""The threads that send to a master: whatever goes wrong in one, its batch comes back with an error."""

from __future__ import annotations

import queue
from contextlib import closing
from pathlib import Path

import pytest

from rla_agent.replicate.backend.target import BlockedError, LinkError, MissingError, NoRootError, Session
from rla_agent.replicate.ledger import Key, Ledger, Temp
from rla_agent.replicate.worker.link import SETTLED_S, Batch, BatchOutcome, Confirmed, Leftovers, Link
from rla_agent.replicate.worker.plan import Local
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


def test_what_a_killed_worker_left_is_cleared_away_again_once_its_server_has_settled(tmp_path: Path) -> None:
    """The server may make a temp file after the next worker found none: the request was on its way."""
    late, now = b"log/.rla-tmp-1", 1000.0
    with closing(Ledger(tmp_path / "ledger.db")) as ledger:
        ledger.add_temps(1, [Temp(late, Key(1, b"progress.csv"), Local(1, 2, 3, 4), 0)])
        ledger.commit()
        leftovers = Leftovers(ledger, 1)
        assert leftovers.take_orphans(now) == (late,)
        assert leftovers.cleared([late], now) == []  # the ledger keeps it, for a next worker, too
        assert leftovers.take_orphans(now + 1) == ()
        assert leftovers.take_orphans(now + SETTLED_S) == (late,)
        assert leftovers.cleared([late], now + SETTLED_S) == [late]
        assert leftovers.take_orphans(now + 3 * SETTLED_S) == ()
