"""The agent's handle on the replicator process: start, look after, stop.

`poll` is called from the agent's loop; it never waits. A worker that dies is started again with
full-jitter backoff (1 s → 60 s); one that ran for `STEADY_S` starts from the first step again.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Final

from rla_client.contract.files import fsync_folder

FIRST_BACKOFF_S: Final = 1.0
MAX_BACKOFF_S: Final = 60.0
STEADY_S: Final = 60.0
KILL_AFTER_S: Final = 5.0


class ReplicatorProcess:
    """One worker process under the agent."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._log_path = state / "replicate" / "worker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._tries = 0
        self._not_before = 0.0
        self._started = 0.0

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
        command = [
            sys.executable,
            "-m",
            "rla_agent.replicate.worker.main",
            "--state",
            str(self._state),
            "--parent",
            str(os.getpid()),
        ]
        with self._log_path.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/", close_fds=True
            )
        fsync_folder(self._log_path.parent)
        self._started = now

    def poll(self, now: float) -> None:
        """See whether the worker lives; start it again when its time has come.

        Args:
            now: monotonic seconds.
        """
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process = None
            self._tries = 0 if now - self._started > STEADY_S else self._tries + 1
            limit = min(MAX_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._tries, 10))
            self._not_before = now + random.random() * limit  # noqa: S311 - jitter
        elif now >= self._not_before:
            self.start(now)

    def stop(self, timeout: float = 10.0) -> None:
        """Ask the worker to end, wait at most `timeout` seconds, then kill it."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(KILL_AFTER_S)
