"""Temp files that earlier tries left on the master."""

from __future__ import annotations

import os
import queue
from contextlib import closing
from pathlib import Path

import pytest

from rla_agent.replicate.file_state import Local
from rla_agent.replicate.ledger import Ledger
from rla_agent.replicate.ledger_rows import Key, Temp
from rla_agent.replicate.worker.batch import BatchOutcome, Confirmed
from rla_agent.replicate.worker.committed import Committed
from rla_agent.replicate.worker.database import TargetDatabase
from rla_agent.replicate.worker.leftovers import SETTLED_S, Leftovers
from rla_agent.replicate.worker.scan import Scanner, ScanScope
from rla_agent.replicate.worker.sender_threads import SenderThreads


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


def test_what_there_is_nothing_to_send_of_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "data/log/t/2026/11/21/09-30-01-000001_h_x").mkdir(parents=True)
    path = b"log/t/2026/11/21/09-30-01-000001_h_x/note.json"
    outcomes: queue.SimpleQueue[BatchOutcome | Confirmed] = queue.SimpleQueue()
    with closing(Ledger(tmp_path / "ledger.db")) as ledger, closing(Committed(tmp_path)) as committed:
        root = bytes(tmp_path / "data")
        number = ledger.database(root, "there")
        sender = SenderThreads(lambda: pytest.fail("nothing to send"), outcomes, lambda: None, 1)
        with closing(
            TargetDatabase(number, Scanner(root, ScanScope("")), sender, ledger, committed)
        ) as database:
            file = Path(os.fsdecode(root + b"/" + path))
            file.write_text("{}")
            database.changes.hint(path, 1.0, whole=True)
            (key,) = database._flight.ready
            database._flight.left_behind.add(key)
            file.unlink()
            assert database._jobs.take(ledger.due(number, 2.0, (0, 99), 10), 2.0, -1, 1 << 20) == []
            assert (database._flight.ready, database._flight.left_behind) == (set(), set())
