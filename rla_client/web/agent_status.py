"""Status of agents on a page.

It is told as `rla-agent status` does. The agent package is asked by a process of its own, one at a time, and
only while somebody looks. A machine that is the master has the fleet's status files itself, in `.rla-fleet/`
of a data root; elsewhere they come from the master, over the network.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from rla_client.database.records.fleet import described, fleet_files, told_apart
from rla_client.web.page_json import sent
from rla_client.web.run_registry import Site

FRESH_S = 2.0  # an answer is given again for so long
FLEET_FRESH_S = 60.0  # the master's, unless somebody asks for it now
FLEET_AGAIN_S = 5.0
STATUS_TIMEOUT_S = 15.0
FLEET_TIMEOUT_S = 60.0
MAX_ERROR = 2000  # characters of what a command said


class Machine:
    """What the agent here and the masters said last. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._agent = _Asked(["status", "--json"], STATUS_TIMEOUT_S)
        self._fleet = _Asked(["status", "--fleet", "--json"], FLEET_TIMEOUT_S)

    def status(self, site: Site) -> dict[str, Any]:
        """`status`, as of `rla-agent status --json`, or an `error` that says what to do."""
        return {**self._agent.answer(FRESH_S), "databases": [str(one.data_root) for one in site.databases]}

    def fleet(self, site: Site, asked: dict[str, Any]) -> dict[str, Any]:
        """Machines known on this one, where it is their master.

        And those that masters know, if `network` is asked for; `now`: though they were asked a moment ago.
        """
        roots = [database.data_root for database in site.databases]
        machines = [_machine(one, str(root)) for root in roots for one in fleet_files(root)]
        found: dict[str, Any] = {"machines": machines}
        if asked.get("network") is True:
            answer = self._fleet.answer(FLEET_AGAIN_S if asked.get("now") is True else FLEET_FRESH_S)
            masters = answer.get("status")
            age_s = time.monotonic() - self._fleet.moment
            for target, listed in masters.items() if isinstance(masters, dict) else ():
                of_master = told_apart([described(one) for one in listed if isinstance(one, dict)])
                machines += [_machine(one, str(target), age_s) for one in of_master]
            found |= {"error": answer.get("error"), "age_s": age_s}
        return found


class _Asked:
    """A command of the agent package and its last answer."""

    def __init__(self, words: list[str], timeout_s: float) -> None:
        self._words = words
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._last: dict[str, Any] = {}
        self.moment = -1e9  # of the last answer, on the steady clock

    def answer(self, fresh_s: float) -> dict[str, Any]:
        """The last answer, or a new one where that is older; while another thread asks, the last one."""
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


def _machine(machine: dict[str, Any], master: str, older_s: float = 0.0) -> dict[str, Any]:
    """A machine as the page shows it."""
    shown = {**machine, "master": master, "age_s": machine["age_s"] + older_s}
    return shown | {name: sent(machine[name]) for name in ("backlog", "runs")}
