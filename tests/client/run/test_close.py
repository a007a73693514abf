"""The end of runs that are left behind."""

from __future__ import annotations

import sys
import threading
from collections import deque

from rla_client.run.close import end_left, entered
from rla_client.run.configure import RunSetup
from rla_client.run.run_data import RunData
from rla_client.stream import run_scope


def test_threads_open_runs_while_another_looks_for_what_is_left() -> None:
    """Each `init` looks; a set of weak references cannot be read while another thread adds to it."""
    interval, stop = sys.getswitchinterval(), threading.Event()
    kept: deque[RunData] = deque(maxlen=200)

    def open_many() -> None:
        while not stop.is_set():
            kept.append(RunData(RunSetup(), run_scope.Scope()))
            with entered(kept[-1]):
                pass

    opener = threading.Thread(target=open_many)
    sys.setswitchinterval(1e-6)
    try:
        opener.start()
        for _ in range(5000):
            end_left()
    finally:
        stop.set()
        opener.join()
        sys.setswitchinterval(interval)
        run_scope.reset()
