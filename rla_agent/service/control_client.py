"""Requests to a serving agent over its control socket."""

from __future__ import annotations

from typing import Any

from rla_agent.service.lock_holder import describe_holder, read_holder
from rla_client.contract.agent.agent_connection import ask
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places
from rla_client.contract.errors import AgentNotRunningError, RlaError
from rla_client.contract.spool.protocol import PROTOCOL_VERSION

ASK_TIMEOUT_S = 5.0


def ask_status(places: Places, timeout_s: float = ASK_TIMEOUT_S) -> dict[str, Any]:
    """Request the agent's status.

    Raises:
        AgentNotRunningError: no agent holds the lock.
        RlaError: one does and does not answer.
    """
    return ask_agent(places, {}, timeout_s)


def ask_agent(places: Places, question: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Ask the agent that holds the lock; see `ask_status`."""
    if not agent_alive(places):
        raise AgentNotRunningError(
            f"no agent is running for {places.state}; start one: rla-agent start --detach"
        )
    told = read_holder(places).get("protocol", 1)  # an agent that was not restarted after an upgrade
    version = min(told, PROTOCOL_VERSION) if isinstance(told, int) else None
    answer = ask(places.control_socket, question, timeout_s, version=version)
    if answer is not None:
        return answer
    raise RlaError(f"the agent does not answer within {timeout_s:g} s: {describe_holder(places)}")
