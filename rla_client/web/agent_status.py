"""Status of the machine's agent on a page."""

from __future__ import annotations

from typing import Any

from rla_client.web.agent_command import CachedAnswer
from rla_client.web.run_registry import Site

FRESH_S = 2.0  # age up to which an answer is served again
TIMEOUT_S = 15.0


class AgentStatus:
    """The last status of this machine's agent. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._command = CachedAnswer(["status", "--json"], TIMEOUT_S)

    def answer(self, site: Site) -> dict[str, Any]:
        """`status`, as of `rla-agent status --json`, or an `error` that says what to do."""
        return {**self._command.answer(FRESH_S), "databases": [str(one.data_root) for one in site.databases]}
