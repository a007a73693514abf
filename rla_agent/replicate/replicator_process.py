"""Supervision of the worker process by the agent.

A worker that dies is started again with full-jitter backoff (1 s → 60 s), which begins anew after one that
ran for `STEADY_S`.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from rla_agent.replicate.child_process import end_child
from rla_client.contract.filesystem.atomic_write import fsync_folder
from rla_client.contract.text.terminal_text import printable

FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
STEADY_S: Final = 60.0
LAST_BYTES: Final = 4096
LOG_BYTES: Final = 4 << 20  # of worker.log; the one before is kept
_log = logging.getLogger("rla_agent.replicate.replicator_process")


class ReplicatorProcess:
    """One worker process under the agent."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._log_path = state / "replicate" / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._tries = 0
        self._not_before = 0.0
        self._started = 0.0
        self._refused = self._short_lived = ""  # as they were logged last

    @property
    def fault(self) -> str:
        """Why it could not be started, or that it exited early; empty while all is well."""
        return self._refused or self._short_lived

    @property
    def pid(self) -> int | None:
        """The worker's process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, now: float = 0.0) -> None:
        """Start the worker; does nothing when it runs."""
        if self.pid is not None:
            return
        self._log_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [sys.executable, "-m", "rla_agent.replicate.worker.main"]
        command += ["--state", str(self._state), "--parent", str(os.getpid())]
        rotate(self._log_path)
        with self._log_path.open("ab") as output:
            fsync_folder(self._log_path.parent)
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", close_fds=True
            )
        self._started = now

    def poll(self, now: float) -> None:
        """Check the worker; start it again when its backoff is over (`now`: monotonic seconds)."""
        if self._process is not None:
            steady = now - self._started > STEADY_S
            if steady:
                self._short_lived = ""
            status = self._process.poll()
            if status is None:
                return
            self._process = None
            if not steady:
                words = _last_line(self._log_path)
                found = f"the replicator exited within a minute (exit status {status}): {words}"
                self._short_lived = _logged_once(found, self._short_lived)
            self._later(now, 0 if steady else self._tries + 1)
        elif now >= self._not_before:
            try:
                self.start(now)
            except OSError as error:  # no room for its log, or for a process: the agent continues without it
                found = f"the replicator cannot be started; retrying: {error}"
                self._refused = _logged_once(found, self._refused)
                self._later(now, self._tries + 1)
            else:
                self._refused = ""

    def _later(self, now: float, tries: int) -> None:
        self._tries = tries
        limit = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(tries, 10))
        self._not_before = now + random.random() * limit  # noqa: S311 - jitter

    def stop(self, timeout: float = 10.0) -> None:
        """Ask the worker to end, wait at most `timeout` seconds, then kill it."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        end_child(process, "the replicator", timeout)


def _logged_once(fault: str, before: str) -> str:
    """Log a fault unless it is the same as before; returns it."""
    if fault != before:
        _log.warning("%s", fault)
    return fault


def _last_line(path: Path) -> str:
    """The last line of a log, which has the error."""
    try:
        with path.open("rb") as log:
            log.seek(-min(LAST_BYTES, log.seek(0, os.SEEK_END)), os.SEEK_END)
            lines = log.read().decode("utf-8", "replace").split("\n")
    except OSError as error:
        return str(error)
    return next((printable(line.strip()) for line in reversed(lines) if line.strip()), "it said nothing")


def rotate(path: Path) -> None:
    """Rotate a long log, replacing the one that was rotated before."""
    with suppress(FileNotFoundError):
        if path.stat().st_size > LOG_BYTES:
            path.replace(path.with_name(path.name + ".1"))
