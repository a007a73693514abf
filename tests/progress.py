"""Progress for unattended runs: each minute what is under way, and each failure as soon as it is known.

Loaded by `conftest.py`, at work only with `RLA_TEST_PROGRESS=1` (as `.ci/run` sets it): a run that is
ended from outside has then said where it was and what had failed.
"""

from __future__ import annotations

import os
import threading
import time

import pytest

PROGRESS_VARIABLE = "RLA_TEST_PROGRESS"
EACH_S = 60.0
SHOWN = 120  # characters of a test's name


class Progress:
    """Follows the tests of all workers from the process that collects their reports."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._ended = 0
        self._begin = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, name="progress", daemon=True)

    def pytest_sessionstart(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        """Tell no more."""
        self._over.set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A worker began a test."""
        with self._lock:
            self._started[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A worker ended a test."""
        with self._lock:
            self._started.pop(nodeid, None)
            self._ended += 1

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Show a failure at once; the summary at the end repeats it."""
        if report.failed:
            self._write(f"FAILED ({report.when}) {report.nodeid}\n{report.longreprtext}")

    def _tell(self) -> None:
        while not self._over.wait(EACH_S):
            now = time.monotonic()
            with self._lock:
                under_way = [f"{name[:SHOWN]} ({now - since:.0f} s)" for name, since in self._started.items()]
                ended = self._ended
            told = ", ".join(under_way) or "none"
            self._write(f"{(now - self._begin) / 60:.0f} min: {ended} tests ended; under way: {told}")

    def _write(self, text: str) -> None:
        self._reporter.write(f"\n{text}\n", flush=True)


@pytest.hookimpl(trylast=True)  # the reporter is there by then
def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin in the process that owns the terminal: xdist's workers have no reporter."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if (
        os.environ.get(PROGRESS_VARIABLE) == "1"
        and reporter is not None
        and not hasattr(config, "workerinput")
    ):
        config.pluginmanager.register(Progress(reporter), "rla-progress")
