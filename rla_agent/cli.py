"""`rla-agent`: the command of the service.

Exit codes: 0 done · 1 failed · 2 wrong usage · 3 the agent runs already, or does not run ·
4 the state folder cannot be used · 5 the configuration has faults.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rla_agent.control import ask_status, start_detached, stop_agent
from rla_agent.lock import describe_holder
from rla_client.autostart import agent_alive
from rla_client.config import load_config
from rla_client.errors import AgentNotRunningError, ConfigError, PlaceError, RlaError
from rla_client.places import find_places

EXIT_FAILED, EXIT_STATE, EXIT_PLACE, EXIT_CONFIG = 1, 3, 4, 5

app = typer.Typer(
    name="rla-agent",
    help="The logging agent of this machine: takes in what training processes write, and keeps it.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="rla_config.yaml whose AGENT section is used.")
]


def fail(error: object, code: int = EXIT_FAILED) -> NoReturn:
    """Say what is wrong on stderr and end."""
    typer.echo(f"rla-agent: {error}", err=True)
    raise typer.Exit(code)


def fail_as(error: RlaError) -> NoReturn:
    """End with the exit code that belongs to an error."""
    if isinstance(error, ConfigError):
        fail(error, EXIT_CONFIG)
    if isinstance(error, PlaceError):
        fail(error, EXIT_PLACE)
    if isinstance(error, AgentNotRunningError):
        fail(error, EXIT_STATE)
    fail(error)


@app.command()
def start(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it serves, also if one runs already.")
    ] = False,  # noqa: FBT002 - an option
    config: ConfigOption = None,
) -> None:
    """Start the agent, in the foreground or in the background."""
    places = find_places()
    try:
        if config is not None:
            load_config(config)
        places.create()
        places.stopped_marker.unlink(missing_ok=True)
        if detach:
            fresh = start_detached(places, config)
            typer.echo(f"agent {'started' if fresh else 'runs already'}: {describe_holder(places)}")
            return
        if agent_alive(places):
            fail(f"an agent already serves this folder: {describe_holder(places)}", EXIT_STATE)
    except RlaError as error:
        fail_as(error)
    except OSError as error:
        fail(f"cannot use the state folder {places.state}: {error}", EXIT_PLACE)
    arguments = [sys.executable, "-m", "rla_agent.daemon"]
    if config is not None:
        arguments += ["--config", str(config)]
    sys.stdout.flush()
    os.execv(sys.executable, arguments)  # noqa: S606 - the daemon does without typer and rich


@app.command()
def stop() -> None:
    """Let the agent write what it has, then end it. Clients start no new one until `start`."""
    places = find_places()
    try:
        places.create()
        places.stopped_marker.touch(mode=0o600)
        was = stop_agent(places)
    except RlaError as error:
        fail_as(error)
    if not was:
        fail(f"no agent was running for {places.state}", EXIT_STATE)
    typer.echo("agent stopped; clients start no new one until: rla-agent start")


@app.command()
def restart(config: ConfigOption = None) -> None:
    """Stop the agent if it runs, and start it in the background."""
    places = find_places()
    try:
        stop_agent(places)
        places.stopped_marker.unlink(missing_ok=True)
        start_detached(places, config)
    except RlaError as error:
        fail_as(error)
    typer.echo(f"agent restarted: {describe_holder(places)}")


@app.command()
def status(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as JSON; its fields are stable.")
    ] = False,  # noqa: FBT002 - an option
) -> None:
    """Show the agent, its runs, and what needs attention."""
    places = find_places()
    try:
        found = ask_status(places)
    except RlaError as error:
        if as_json:
            state = "not running" if isinstance(error, AgentNotRunningError) else "not answering"
            not_there = {"agent": {"pid": None, "state": state}, "problems": [{"what": str(error), "mend": ""}]}
            typer.echo(json.dumps(not_there))
        fail_as(error)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    from rla_agent.status_view import show_status  # noqa: PLC0415 - rich is slow to import

    show_status(found)


def main(arguments: list[str] | None = None) -> Any:  # noqa: ANN401 - typer's
    """Entry point of `rla-agent`."""
    return app(arguments)


if __name__ == "__main__":
    main()
