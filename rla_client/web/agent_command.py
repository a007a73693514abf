"""Cached answer of a command of the agent.

The command runs in a process of its own, one at a time, and only while a page asks for it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from rla_client.web.page_json import sent

MAX_ERROR = 2000  # characters of a command's error text


class CachedAnswer:
    """The last answer of a command of the agent package."""

    def __init__(self, words: list[str], timeout_s: float) -> None:
        self._words = words
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._last: dict[str, Any] = {}
        self.moment = -1e9  # of the last answer, in seconds of the monotonic clock

    def answer(self, fresh_s: float) -> dict[str, Any]:
        """The last answer, or a new one if that is older than `fresh_s`.

        While another thread runs the command, the last answer is returned.
        """
        if not self._lock.acquire(blocking=not self._last):
            return self._last
        try:
            if time.monotonic() - self.moment > fresh_s:
                self._last = _ask(self._words, self._timeout_s)
                self.moment = time.monotonic()
            return self._last
        finally:
            self._lock.release()


def _ask(words: list[str], timeout_s: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "rla_agent", *words]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"rla-agent {' '.join(words)} did not answer within {timeout_s:.0f} s"}
    except OSError as error:
        return {"error": f"rla-agent cannot be started: {error.strerror or error}"}
    with suppress(ValueError):
        found = json.loads(done.stdout)
        if isinstance(found, dict):
            return {"status": sent(found)}
    said = done.stderr.decode("utf-8", "replace").strip() or f"it ended with code {done.returncode}"
    if "No module named" in said:
        said = "the agent's package is not installed beside this one: pip install rla-agent"
    return {"error": said[-MAX_ERROR:]}
