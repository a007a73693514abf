"""Processes that came of a test: each inherits the test's marker in its environment."""

from __future__ import annotations

import contextlib
import os

import psutil

from rla_client.contract.agent.places import RUNTIME_VARIABLE

MARKER_VARIABLE = "RLA_TEST_MARKER"


def processes_of(marker: str) -> list[psutil.Process]:
    """Processes, this one aside, that inherited the test's marker; detached ones keep the runtime folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            environment = process.environ()
            values = (environment.get(MARKER_VARIABLE, ""), environment.get(RUNTIME_VARIABLE, ""))
            ended = process.status() == psutil.STATUS_ZOMBIE
            if process.pid != os.getpid() and not ended and any(marker in value for value in values):
                found.append(process)
    return found
