"""`rla-agent`: the command of the service.

Exit codes: 0 done · 1 failed, or doctor found something · 2 wrong usage · 3 the agent runs already,
or does not run · 4 the state folder cannot be used · 5 the configuration has faults. `run` ends with
the status of its command.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from rla_agent.model.status import absent_status
from rla_agent.service.control_client import ask_status
from rla_agent.service.lock_holder import describe_holder
from rla_agent.service.log_tail import follow_log, last_lines
from rla_agent.service.notifier import SERVICE_VARIABLE
from rla_agent.service.other_spools import left_behind
from rla_agent.service.start_stop import start_detached, stop_agent
from rla_agent.service.unit_files import install_system_unit, install_user_unit
from rla_agent.store.sqlite import NewerFormatError
from rla_client.config.schema import AgentConfig, load_config
from rla_client.contract import __version__
from rla_client.contract.agent.agent_environment import OWNER_VARIABLE
from rla_client.contract.agent.agent_process import agent_alive
from rla_client.contract.agent.places import Places, find_places
from rla_client.contract.errors import (
    AgentNotRunningError,
    AgentRunningError,
    ConfigError,
    PlaceError,
    RlaError,
)
from rla_client.contract.spool.segments import spool_bytes, stream_names
from rla_client.contract.text.command_line import columns, escape_unprintable, examples, run_app, tell_error

if TYPE_CHECKING:
    from rla_client.config.alerts import AlertRule, Alerts

EXIT_FAILED, EXIT_USAGE, EXIT_STATE, EXIT_PLACE, EXIT_CONFIG, EXIT_NEWER = 1, 2, 3, 4, 5, 6

app = typer.Typer(
    name="rla-agent",
    help="The logging agent of this machine: stores what training processes log.",
    no_args_is_help=True,
    add_completion=True,
    epilog=examples("rla-agent start --detach", "rla-agent status"),
    pretty_exceptions_enable=False,
)

MOST_LINES = 1_000_000_000  # that can be asked for; far more do not fit the types below
REPLICATION_COMMANDS = ("replicate", "transfer", "trust", "prune", "alerts", "forget")

ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="rla_config.yaml whose AGENT section is used.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; its fields are stable.")]


def fail(error: object, code: int = EXIT_FAILED) -> NoReturn:
    """Say what is wrong on stderr and end."""
    tell_error(error)
    raise typer.Exit(code)


def fail_as(error: RlaError) -> NoReturn:
    """End with the exit code that belongs to an error."""
    codes = (
        (ConfigError, EXIT_CONFIG),
        (NewerFormatError, EXIT_NEWER),
        (PlaceError, EXIT_PLACE),
        (AgentNotRunningError, EXIT_STATE),
        (AgentRunningError, EXIT_STATE),
    )
    fail(error, next((code for kind, code in codes if isinstance(error, kind)), EXIT_FAILED))


@contextmanager
def _failures(what: str = "", code: int = EXIT_FAILED) -> Iterator[None]:
    """An error ends the command: one of ours with its own exit code, one of the system with `code`."""
    try:
        yield
    except RlaError as error:
        fail_as(error)
    except OSError as error:
        fail(f"{what}{error}", code)


def _using(places: Places) -> AbstractContextManager[None]:
    return _failures(f"cannot use the state folder {places.state}: ", EXIT_PLACE)


def settings_of(config: Path | None) -> AgentConfig:
    """The AGENT section of a file, the defaults without one; ends with all its faults otherwise."""
    try:
        return load_config(config).agent if config is not None else AgentConfig()
    except ConfigError as error:
        fail_as(error)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"rla-agent {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Store what training processes log: the logging agent of this machine."""
    del version


# -- start and stop -----------------------------------------------------------------------------


@app.command(epilog=examples("rla-agent start --detach", "rla-agent start --config rla_config.yaml"))
def start(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return as soon as an agent serves.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Start the agent, in the foreground or in the background."""
    os.environ.pop(OWNER_VARIABLE, None)  # an agent that is asked for by name outlives the job
    places = find_places()
    settings_of(config)
    with _using(places):
        places.create()
        places.stopped_marker.unlink(missing_ok=True)
        if detach:
            fresh = start_detached(places, config)
            typer.echo(f"agent {'started' if fresh else 'is already running'}: {describe_holder(places)}")
            return
        if agent_alive(places) and not os.environ.get(SERVICE_VARIABLE):
            fail(f"an agent already serves this folder: {describe_holder(places)}", EXIT_STATE)
    arguments = [sys.executable, "-m", "rla_agent.daemon"]
    if config is not None:
        arguments += ["--config", str(config)]
    sys.stdout.flush()
    os.execv(sys.executable, arguments)  # noqa: S606 - the daemon does without typer and rich


@app.command(epilog=examples("rla-agent stop", "rla-agent stop && rla-agent start --detach"))
def stop() -> None:
    """Stop the agent once it has written everything. Runs start no new agent until `start`."""
    places = find_places()
    with _using(places):
        places.create()
        places.stopped_marker.touch(mode=0o600)
        was = stop_agent(places)
    if not was:
        fail(
            f"no agent was running for {places.state}; clients start none until: rla-agent start", EXIT_STATE
        )
    typer.echo("agent stopped; runs start no new one until: rla-agent start")


@app.command(epilog=examples("rla-agent restart", "rla-agent restart --config rla_config.yaml"))
def restart(config: ConfigOption = None) -> None:
    """Stop the agent if it runs, and start it in the background."""
    places = find_places()
    settings_of(config)
    with _using(places):
        places.create()
        stop_agent(places)
        places.stopped_marker.unlink(missing_ok=True)
        start_detached(places, config)
    typer.echo(f"agent restarted: {describe_holder(places)}")


# -- looking ------------------------------------------------------------------------------------


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
        from rla_agent.command.replicate import show_fleet  # noqa: PLC0415 - paramiko

        show_fleet(places.state, config, as_json=as_json)
        return
    if watch:
        from rla_agent.command.status_view import watch_status  # noqa: PLC0415 - rich is slow to import

        watch_status(lambda: _status_or_absent(places)[0], as_json=as_json)
        return
    found, error = _status_or_absent(places)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        from rla_agent.command.status_view import show_status  # noqa: PLC0415

        told = 0 if error is None else 1  # on stderr
        show_status({**found, "problems": found["problems"][told:]})
    if error is not None:
        fail_as(error)


def _status_or_absent(places: Places) -> tuple[dict[str, Any], RlaError | None]:
    """The agent's status, or one of the same shape that says why there is none."""
    from rla_agent.replicate.report import attention, replication_status  # noqa: PLC0415 - only here

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


@app.command(epilog=examples("rla-agent logs", "rla-agent logs --follow"))
def logs(
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines as they are written.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=MOST_LINES, help="How many lines, the last ones.")
    ] = 50,
) -> None:
    """Print the agent's log."""
    path = find_places().log
    if not path.exists() and not follow:
        fail(f"there is no log yet: {path}", EXIT_STATE)
    try:
        following = follow_log(path) if follow else iter(())
        for line in itertools.chain(last_lines(path, lines), following):
            typer.echo(line)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
    except OSError as error:
        fail(f"cannot read {path}: {error.strerror or error}", EXIT_PLACE)


@app.command(
    "check-config",
    epilog=examples("rla-agent check-config", "rla-agent check-config project/rla_config.yaml"),
)
def check_config(
    path: Annotated[Path, typer.Argument(help="The file.")] = Path("rla_config.yaml"),
) -> None:
    """List every fault of an rla_config.yaml, with line and key."""
    with _failures():
        load_config(path)
    typer.echo(f"{path}: no faults")


@app.command(epilog=examples("rla-agent doctor", "rla-agent doctor --master --config rla_config.yaml"))
def doctor(
    as_json: JsonOption = False,
    config: ConfigOption = None,
    master: Annotated[
        bool, typer.Option("--master", help="Check the connection to the master that the config names.")
    ] = False,
) -> None:
    """Check everything that the agent depends on; each finding says how to fix it."""
    from rla_agent.service.doctor.examination import examine, report  # noqa: PLC0415 - only here
    from rla_agent.service.doctor.surroundings import Surroundings  # noqa: PLC0415 - only here

    surroundings = Surroundings.here(config)
    if master and surroundings.config_faults:
        fail("\n".join(surroundings.config_faults), EXIT_CONFIG)
    if master:
        from rla_agent.command.replicate import examine_master  # noqa: PLC0415 - paramiko
        from rla_agent.replicate.settings import folder  # noqa: PLC0415

        findings = examine_master(surroundings.config, folder(surroundings.places.state))
    else:
        findings = examine(surroundings)
    if as_json:
        typer.echo(json.dumps({"format": 1, "findings": [asdict(one) for one in findings]}, indent=2))
    else:
        typer.echo(report(findings, columns(sys.stdout)))
    if any(finding.level != "note" for finding in findings):
        raise typer.Exit(EXIT_FAILED)


# -- work ---------------------------------------------------------------------------------------


@app.command(
    epilog=examples("rla-agent drain", "rla-agent drain --spool /mnt/copy/spool --data-root /old=/new")
)
def drain(
    spool: Annotated[
        Path | None,
        typer.Option("--spool", help="A spool or state folder; may be copied from another machine."),
    ] = None,
    data_root: Annotated[
        list[str] | None,
        typer.Option("--data-root", metavar="OLD=NEW", help="A data root that has moved; repeatable."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write out a spool once and return when all is on disk; if an agent serves it, wait for that agent."""
    from rla_agent.service.drain import drain_spool  # noqa: PLC0415 - loads the sinks

    settings = settings_of(config)
    with _failures(code=EXIT_PLACE):
        lines, code = drain_spool(find_places(), spool, data_root or [], settings)
    typer.echo("\n".join(lines))
    raise typer.Exit(code)


@app.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    epilog=examples("rla-agent run -- python train.py", "rla-agent run --drain 300 -- torchrun train.py"),
)
def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    drain_s: Annotated[
        float,
        typer.Option("--drain", min=0, help="Seconds to wait, after the command, until its data are stored."),
    ] = 60.0,
    console: Annotated[
        bool, typer.Option(help="Copy the command's output to console.txt in the log folder of its runs.")
    ] = True,
    config: ConfigOption = None,
) -> None:
    """Run a command with an agent of its own, for batch jobs and containers."""
    from rla_agent.command.run import run_command  # noqa: PLC0415 - only here

    settings = settings_of(config)
    code = run_command(command, find_places(), settings, drain_s=drain_s, console=console, config=config)
    raise typer.Exit(code)


@app.command(
    "install-service",
    epilog=examples("rla-agent install-service", "sudo rla-agent install-service --system --data-root /data"),
)
def install_service(
    user: Annotated[bool, typer.Option("--user", help="A unit of your user (the default).")] = False,
    system: Annotated[
        bool, typer.Option("--system", help="A hardened system unit that runs as one user; needs root.")
    ] = False,
    data_root: Annotated[
        list[Path] | None,
        typer.Option("--data-root", help="A folder that the service may write to (--system); repeatable."),
    ] = None,
    for_user: Annotated[
        str,
        typer.Option(
            "--for-user", help="The user whom the system unit serves; default: the one who called sudo."
        ),
    ] = "",
    destination: Annotated[
        Path | None, typer.Option("--destination", help="Write the files below this folder instead.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write a systemd unit and print the commands that enable it, without running them."""
    settings_of(config)
    if user and system:
        fail("choose one of --user and --system", EXIT_USAGE)
    if data_root and not system:
        fail("--data-root is for --system; a user unit may write wherever you may", EXIT_USAGE)
    with _failures():
        if system:
            lines = install_system_unit(data_root or [], for_user, destination, config)
        else:
            lines = install_user_unit(destination, config)
    typer.echo("\n".join(lines))


def forget(
    roots: Annotated[
        list[str] | None, typer.Argument(metavar="[DATA_ROOT]...", help="Data roots that no longer exist.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All data roots that are missing now.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, only list.")] = False,
) -> None:
    """Delete rows that wait for a data root which will not come back. Lists them first."""
    from rla_agent.service.forget import chosen, forget_streams, listing, waiting_streams  # noqa: PLC0415 - loads the sinks

    places = find_places()
    try:
        streams = waiting_streams(places.spool) if places.spool.is_dir() else []
        if not streams:
            typer.echo("no ended stream waits for a data root")
            return
        if yes and not roots and not every:
            fail("name the data roots to give up, or --all", EXIT_USAGE)
        some = chosen(streams, roots or (), every=every or not roots)
        typer.echo("\n".join(listing(some)))
        if not yes:
            typer.echo("nothing was changed; to delete these rows for good: rla-agent forget DATA_ROOT --yes")
            return
        forget_streams(places, some)
    except (RlaError, OSError) as error:
        fail(error)
    typer.echo(f"{len(some)} streams given up")


# -- alerts -------------------------------------------------------------------------------------

alerts_app = typer.Typer(
    help="Messages when a run fails, stalls, …: see docs/how-to/alerts.md.", no_args_is_help=True
)
AlertsOption = Annotated[
    Path, typer.Option("--config", help="the rla_config.yaml with the section AGENT.alerts")
]


def _alerts_of(config: Path) -> Alerts:
    """The section of a file; ends with all its faults, or when it has none."""
    found = settings_of(config).alerts
    if found is None or not found.channels:
        fail(f"{config} names no channel in AGENT.alerts", EXIT_CONFIG)
    return found


@alerts_app.command("test", epilog=examples("rla-agent alerts test", "rla-agent alerts test --channel mail"))
def send_test(
    config: AlertsOption = Path("rla_config.yaml"),
    channel: Annotated[list[str] | None, typer.Option("--channel", help="only this one; repeatable")] = None,
) -> None:
    """Send a test message through each channel, from this shell, and report the result."""
    import socket  # noqa: PLC0415 - only here

    from rla_agent.alerts.channels import send  # noqa: PLC0415 - smtplib
    from rla_agent.alerts.messages import of_test  # noqa: PLC0415
    from rla_agent.alerts.route import Route, SendError  # noqa: PLC0415 - smtplib
    from rla_agent.alerts.rule_files import RuleSet  # noqa: PLC0415
    from rla_agent.store.config_reader import ConfigReader  # noqa: PLC0415

    found = _alerts_of(config)
    names = [known.name for known in found.channels]
    unknown = [name for name in channel or () if name not in names]
    if unknown:
        fail(f"no channel is called {unknown[0]!r}; there are: {', '.join(names)}", EXIT_CONFIG)
    rule_set, path = RuleSet(None, ConfigReader()), os.path.abspath(config)
    host, failed = socket.gethostname() or "localhost", False
    for known in found.channels:
        if channel and known.name not in channel:
            continue
        _, refused = rule_set.channel(path, known.name)
        told = "sent"
        try:
            send(Route(known, Path(path).parent, refused), [of_test(time.time(), host).to_plain()], host)
        except SendError as error:
            told, failed = str(error), True
        typer.echo(f"{known.name} ({known.kind}): {told}")
    if any(known.password_env or known.url_env for known in found.channels):
        typer.echo("note: variables were taken from this shell; the agent needs them too (rla-agent doctor)")
    raise typer.Exit(EXIT_FAILED if failed else 0)


@alerts_app.command(
    "show", epilog=examples("rla-agent alerts show", "rla-agent alerts show --config rla_config.yaml")
)
def show(
    *,
    config: AlertsOption = Path("rla_config.yaml"),
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Show the rules of a configuration, and which messages were sent or are waiting."""
    try:
        told: dict[str, Any] | None = ask_status(find_places()).get("alerts")
    except AgentNotRunningError:
        told = None
    except RlaError as error:
        fail(error, EXIT_STATE)
    if as_json:
        typer.echo(json.dumps(told, indent=2))
        return
    for rule in _alerts_of(config).rules:
        typer.echo(f"{_in_words(rule)} → {', '.join(rule.send)}")
    if told is None:
        typer.echo("no agent is running: what is to be sent waits for the next one")
        return
    for entry in told["channels"]:
        why = f"; {entry['error']}" if entry["error"] else ""
        typer.echo(f"channel {entry['channel']}: {entry['sent']} sent, {entry['waiting']} wait{why}")
    for event in told["recent"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"]))
        typer.echo(f"{when}  {event['title']}")


def _in_words(rule: AlertRule) -> str:
    """A rule for people."""
    event = rule.when[0]
    tables = "" if rule.table == "*" else f" in {rule.table}"
    rows = f" for {rule.rows} rows" if rule.rows > 1 else ""
    once = ", once" if rule.once else ""
    if event == "nan":
        return f"NaN in {rule.metric}{rows}{tables}{once}"
    if event in {"above", "below"}:
        return f"{rule.metric} {event} {rule.value:g}{rows}{tables}{once}"
    if event == "disk_low":
        return f"less than {rule.free_bytes >> 20} MiB free"
    if event == "replication_parked":
        return "replication has stopped"
    return f"run {' or '.join(rule.when)}{tables}"


# -- the app ------------------------------------------------------------------------------------


def make_app() -> typer.Typer:
    """The app with all its commands; those of replication and alerts take longest to import."""
    from rla_agent.command.replicate import replicate_app, trust_command  # noqa: PLC0415 - paramiko
    from rla_agent.command.retain import prune, transfer_app  # noqa: PLC0415 - paramiko

    app.add_typer(
        replicate_app,
        name="replicate",
        epilog=examples("rla-agent replicate status", "rla-agent replicate now"),
    )
    app.add_typer(
        transfer_app,
        name="transfer",
        epilog=examples("rla-agent transfer fetch data/checkpoint/cartpole", "rla pull"),
    )
    app.command(
        "trust",
        epilog=examples(
            "rla-agent trust master.example.org", "rla-agent trust 10.0.0.7 --port 2222 --user rla"
        ),
    )(trust_command)
    app.command(
        "prune", epilog=examples("rla-agent prune --older-than 30d", "rla-agent prune --free 100G --apply")
    )(prune)
    app.add_typer(
        alerts_app, name="alerts", epilog=examples("rla-agent alerts show", "rla-agent alerts test")
    )
    app.command("forget", epilog=examples("rla-agent forget", "rla-agent forget /old/data --yes"))(forget)
    return app


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point of `rla-agent`."""
    escape_unprintable(sys.stdout, sys.stderr)
    words = sys.argv[1:] if arguments is None else arguments
    whole = (
        not words
        or words[0] in REPLICATION_COMMANDS
        or words[0].startswith("-")
        or "_RLA_AGENT_COMPLETE" in os.environ
    )
    run_app(make_app() if whole else app, arguments)


if __name__ == "__main__":
    main()
