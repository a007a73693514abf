"""Status of the fleet's machines on a page.

A machine that is the master has the fleet's status files itself, in `.rla-fleet/` of a data root; other
machines ask their masters over the network.
"""

from __future__ import annotations

import time
from typing import Any

from rla_client.database.records.fleet import described, fleet_files, told_apart
from rla_client.web.agent_command import CachedAnswer
from rla_client.web.page_json import sent
from rla_client.web.run_registry import Site

FRESH_S = 60.0  # age up to which the masters' answer is served again
REFRESH_S = 5.0  # the same, where the user asks for a new answer
TIMEOUT_S = 60.0


class FleetStatus:
    """The last status of the fleet. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._command = CachedAnswer(["status", "--fleet", "--json"], TIMEOUT_S)

    def answer(self, site: Site, asked: dict[str, Any]) -> dict[str, Any]:
        """The machines with status files in this machine's data roots.

        Args:
            site: the databases.
            asked: `network`: add the machines that the masters know; `now`: ask the masters again.
        """
        roots = [database.data_root for database in site.databases]
        machines = [_machine(one, str(root)) for root in roots for one in fleet_files(root)]
        found: dict[str, Any] = {"machines": machines}
        if asked.get("network") is True:
            answer = self._command.answer(REFRESH_S if asked.get("now") is True else FRESH_S)
            masters = answer.get("status")
            age_s = time.monotonic() - self._command.moment
            for target, listed in masters.items() if isinstance(masters, dict) else ():
                of_master = told_apart([described(one) for one in listed if isinstance(one, dict)])
                machines += [_machine(one, str(target), age_s) for one in of_master]
            found |= {"error": answer.get("error"), "age_s": age_s}
        return found


def _machine(machine: dict[str, Any], master: str, older_s: float = 0.0) -> dict[str, Any]:
    """A machine as the page shows it; its status is `older_s` older than it says."""
    shown = {**machine, "master": master, "age_s": machine["age_s"] + older_s}
    return shown | {name: sent(machine[name]) for name in ("backlog", "runs")}
