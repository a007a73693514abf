"""Command `rla-agent status`."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from rla_agent.command.failures import fail_as
from rla_agent.command.group import app
from rla_agent.command.options import JsonOption
from rla_agent.model.status import absent_status
from rla_agent.service.control_client import ask_status
from rla_agent.service.other_spools import left_behind
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import AgentNotRunningError, RlaError
from rla_client.contract.spool.segments import spool_bytes, stream_names
from rla_client.contract.text.command_line import examples

STARTS_S, POLL_S = 3.0, 0.05  # how long an agent may take to come up after the run that started it


@app.command(epilog=examples("rla-agent status", "rla-agent status --json"))
def status(
    as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second.")] = False,
    fleet: Annotated[
        bool, typer.Option("--fleet", help="All machines that replicate to the same master.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="With --fleet: rla_config.yaml that names the master.")
    ] = None,
) -> None:
    """Show the agent, its runs, and what needs attention."""
    places = find_places()
    if fleet:
        from rla_agent.command.replicate.fleet import show_fleet  # noqa: PLC0415 - paramiko

        show_fleet(places.state, config, as_json=as_json)
        return
    if watch:
        from rla_agent.command.status_view import watch_status  # noqa: PLC0415 - rich is slow to import

        watch_status(lambda: _status_or_absent(places)[0], as_json=as_json)
        return
    found, error = _status_or_absent(places)
    if isinstance(error, AgentNotRunningError) and _one_starts(places):
        found, error = _status_or_absent(places)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        from rla_agent.command.status_view import show_status  # noqa: PLC0415

        told = 0 if error is None else 1  # on stderr
        show_status({**found, "problems": found["problems"][told:]})
    if error is not None:
        fail_as(error)


def _one_starts(places: Places) -> bool:
    """Whether the agent that a run has just started comes up, which takes a moment."""
    with suppress(OSError, ValueError):  # nothing waits
        newest = max((places.spool / name).stat().st_mtime for name in stream_names(places.spool))
        deadline = min(newest, time.time()) + STARTS_S
        while not places.stopped and time.time() < deadline:
            if agent_alive(places) and places.control_socket.exists():
                return True
            time.sleep(POLL_S)
    return False


def _status_or_absent(places: Places) -> tuple[dict[str, Any], RlaError | None]:
    """The agent's status, or one of the same form with the reason for its absence."""
    from rla_agent.replicate.problems import attention  # noqa: PLC0415 - only here
    from rla_agent.replicate.status import replication_status  # noqa: PLC0415 - only here

    error = None
    try:
        found = ask_status(places)
    except RlaError as no_answer:
        error, held, waiting = no_answer, 0, 0
        absent = isinstance(error, AgentNotRunningError)
        with suppress(OSError):
            held = spool_bytes(places.spool)
            waiting = len(stream_names(places.spool)) if absent else 0
        state = "not running" if absent else "not answering"
        found = absent_status(places, str(error), state=state, spool_bytes=held, waiting=waiting)
    replication = replication_status(places.state)  # read here: a large ledger must not hold up the agent
    found["replication"] = replication
    found["problems"] += attention(replication) + left_behind(places)
    return found, error
