"""Fetching processes under the agent's main thread.

A client polls; its first request starts the process, and each request gets an answer at once: `working`,
`done` or `failed`. The last two are given once, then the request is forgotten.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from rla_agent.replicate.child_process import end_child

MAX_FETCHES: Final = 4  # at a time; more wait for their turn
MAX_KEPT: Final = 64  # unclaimed results
MAX_QUESTION_BYTES: Final = 64 << 10
MAX_WORDS_BYTES: Final = 500  # of the end of a process's output
STOP_S: Final = 2.0


@dataclass
class _Fetch:
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]

    def close(self) -> None:
        self.output.close()
        self.errors.close()


class FetchQueue:
    """Runs fetches; belongs to the agent's main thread, and never waits."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._running: dict[str, _Fetch] = {}
        self._ended: dict[str, dict[str, Any]] = {}

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The present answer to a request (without `state`); starts the work of a new one.

        Returns:
            `{"fetch": "working" | "done" | "failed", …}` with the process's answer.
        """
        self.poll()
        try:
            key = json.dumps(question, sort_keys=True)
        except (TypeError, ValueError):
            return {"fetch": "failed", "error": "this is not a question"}
        if key in self._ended:
            found = self._ended.pop(key)
            return {"fetch": "failed" if "error" in found else "done", **found}
        if len(key) > MAX_QUESTION_BYTES:
            return {"fetch": "failed", "error": "the question is too long"}
        if key not in self._running and len(self._running) < MAX_FETCHES:
            try:
                self._running[key] = self._start(question)
            except OSError as error:
                return {"fetch": "failed", "error": f"the agent cannot start a process: {error.strerror}"}
        return {"fetch": "working"}

    def _start(self, question: dict[str, Any]) -> _Fetch:
        request = tempfile.TemporaryFile()  # noqa: SIM115 - the process's
        request.write(json.dumps({**question, "state": str(self._state)}).encode())
        request.seek(0)
        output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - till it has ended
        command = [sys.executable, "-m", "rla_agent.replicate.transfer.fetch_process"]
        process = subprocess.Popen(command, stdin=request, stdout=output, stderr=errors, cwd="/")
        request.close()
        return _Fetch(process, output, errors)

    def poll(self) -> None:
        """Collect ended processes, also those without further requests."""
        for key, running in list(self._running.items()):
            if running.process.poll() is None:
                continue
            del self._running[key]
            running.output.seek(0)
            try:
                found = json.loads(running.output.read())
            except ValueError:
                why = _last_line(running.errors)
                found = {"error": f"the fetching process ended with {running.process.returncode}{why}"}
            running.close()
            self._ended[key] = found
        while len(self._ended) > MAX_KEPT:
            del self._ended[next(iter(self._ended))]

    def stop(self) -> None:
        """End running processes; a later request continues where they stopped."""
        for running in self._running.values():
            running.process.terminate()
        for running in self._running.values():
            end_child(running.process, "a fetch", STOP_S)
            running.close()
        self._running.clear()


def _last_line(errors: IO[bytes]) -> str:
    """`: ` and the end of a failed process's output; empty without any."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - MAX_WORDS_BYTES))
    lines = errors.read().decode("utf-8", "replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return f": {said[-1]}" if said else ""
