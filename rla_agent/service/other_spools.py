"""Other spools of this user without an agent."""

from __future__ import annotations

import shlex

from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places, other_states
from rla_client.contract.spool.segments import stream_names


def left_behind(places: Places) -> list[dict[str, str]]:
    """Other spools of this user that have rows and no agent: `what` and `fix`.

    They exist where a machine's host name or id was changed, or a home came from another machine.
    """
    found = []
    for state in other_states(places.state):
        other = Places(state, state)
        try:
            names = stream_names(other.spool)
        except OSError:
            continue
        if names and not agent_alive(other):
            what = f"rows of {len(names)} process(es) wait in {other.spool}, of another host name or machine"
            found.append({"what": what, "fix": f"rla-agent drain --spool {shlex.quote(str(state))}"})
    return found
