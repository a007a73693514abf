"""The commands: `rla-agent replicate …`, `rla-agent transfer …`, `rla-agent trust HOST`.

Thin: each reads its arguments, calls one function and prints. Exit code 0: done; 1: something is
wrong with the data (faults, failed files); 2: the master or the settings.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from rla_agent.command import transfer as cli_master
from rla_agent.replicate import ledger, report, settings
from rla_agent.replicate.backend.connect import resolve_login
from rla_agent.replicate.backend.sftp import trust
from rla_agent.replicate.backend.target import Session
from rla_agent.replicate.ledger import ledger_path
from rla_agent.replicate.pull import transfer
from rla_agent.replicate.pull import verify as verifying
from rla_agent.replicate.pull.transfer import follow
from rla_agent.replicate.pull.transfer import push as push_items
from rla_agent.replicate.worker.notify import Announcer
from rla_client.config.schema import Config, RemoteSetting, load_config
from rla_client.contract.errors import RlaError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.paths import find_places
from rla_client.contract.textformat import printable
from rla_client.contract.user_messages import examples, tell_error

replicate_app = typer.Typer(help="Replication to the master node.", no_args_is_help=True)
transfer_app = typer.Typer(help="Fetch from, send to and verify the master by hand.", no_args_is_help=True)
cli_master.register(transfer_app)

ConfigOption = Annotated[Path, typer.Option("--config", help="the project's rla_config.yaml")]
RootOption = Annotated[Path, typer.Option("--data-root", help="the local data root")]
TableOption = Annotated[str, typer.Option(help="glob for task tables")]
IndexOption = Annotated[str, typer.Option(help="glob for YYYY/MM/DD/name")]
SinceOption = Annotated[str, typer.Option(help="from this date on, YYYY/MM/DD or YYYY/MM/DD/HH-MM-SS-ffffff")]
UntilOption = Annotated[str, typer.Option(help="up to this date")]
KindOption = Annotated[list[str] | None, typer.Option("--kind", help="data kind; may be given several times")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _fail(error: RlaError) -> typer.Exit:
    hint = getattr(error, "hint", "")
    tell_error(f"{error}\nhint: {hint}" if hint else error)
    return typer.Exit(2)


@replicate_app.command(
    "status", epilog=examples("rla-agent replicate status", "rla-agent replicate status --json")
)
def status(*, as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False) -> None:
    """Show the backlog by kind, rate, last success, and parked files with reason and fix."""
    found = report.replication_status(find_places().state)
    typer.echo(json.dumps(found, indent=1) if as_json else report.as_text(found))


@replicate_app.command(
    "now", epilog=examples("rla-agent replicate now", "rla-agent replicate now data/log/cartpole")
)
def now(
    folders: Annotated[list[Path] | None, typer.Argument(help="item folders; default: everything")] = None,
) -> None:
    """Check for changed files now instead of at the next scan."""
    announcer = Announcer(find_places().state)
    announcer.now(str(folder.absolute()) for folder in folders or ())
    announcer.close()


@replicate_app.command(
    "pause",
    epilog=examples("rla-agent replicate pause", "rla-agent replicate pause && rla-agent replicate status"),
)
def pause() -> None:
    """Send nothing until `resume`."""
    settings.pause(find_places().state)


@replicate_app.command(
    "resume",
    epilog=examples("rla-agent replicate resume", "rla-agent replicate resume && rla-agent replicate status"),
)
def resume() -> None:
    """Resume sending."""
    settings.resume(find_places().state)


@replicate_app.command(
    "retry",
    epilog=examples("rla-agent replicate retry", "rla-agent replicate retry && rla-agent replicate status"),
)
def retry() -> None:
    """Retry parked files, and masters that were given up."""
    _try_again(find_places().state)


def _try_again(state: Path) -> None:
    settings.ask_retry(state)
    announcer = Announcer(state)  # wakes the worker, which reads the marker then
    announcer.now(())
    announcer.close()


@replicate_app.command(
    "fleet",
    epilog=examples("rla-agent replicate fleet", "rla-agent replicate fleet --config rla_config.yaml"),
)
def fleet_command(
    config: Annotated[
        Path | None, typer.Option("--config", help="rla_config.yaml that names the master")
    ] = None,
) -> None:
    """Show all machines that replicate to this master, with their live runs and backlog."""
    show_fleet(find_places().state, config)


def show_fleet(state: Path, config: Path | None, *, as_json: bool = False) -> None:
    """Print what the machines have left on a master, or on all that this machine sends to.

    Raises:
        typer.Exit: 2, a master cannot be reached, none is known, or a config has faults.
    """
    try:
        found = fleet_status(state, config)
    except RlaError as error:
        raise _fail(error) from None
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for target, machines in found.items():
        typer.echo(f"{target}\n{report.machines_text(machines)}")


def fleet_status(state: Path, config: Path | None) -> dict[str, list[dict[str, Any]]]:
    """Master → the machines' status files on it.

    Args:
        state: the agent's state folder.
        config: names the master; None: all masters of this machine's databases.

    Raises:
        RlaError: a master cannot be reached, a config has faults, or there is none.
    """
    configs = [config] if config is not None else [Path(entry.config) for entry in settings.entries(state)]
    targets = {}
    for path in configs:
        target = settings.target(load_config(path), settings.folder(state))
        targets[target.name] = target
    if not targets:
        raise RlaError("no database of this machine goes to a master; name one: --config rla_config.yaml")
    found = {}
    for name, target in targets.items():
        session = target.open()
        try:
            found[name] = report.machines(session)
        finally:
            session.close()
    return found


@replicate_app.command(
    "add",
    epilog=examples("rla-agent replicate add data", "rla-agent replicate add data --config rla_config.yaml"),
)
def add(data_root: Path, config: ConfigOption = Path("rla_config.yaml")) -> None:
    """Replicate an existing database, every item of it; it may be one of the original RLA."""
    try:
        loaded = load_config(config)
        entry = settings.add(find_places().state, data_root, config)
        if not settings.wanted(entry, loaded):
            typer.echo(f"{config} names no master: fill in REMOTE_SETTING.ftp_server (or bucket)", err=True)
    except RlaError as error:
        raise _fail(error) from None
    typer.echo(f"{entry.data_root} is replicated while the agent runs; see: rla-agent replicate status")


def trust_command(
    host: str,
    *,
    port: Annotated[int | None, typer.Option(help="sshd's port")] = None,
    user: Annotated[str, typer.Option(help="user on the master")] = "",
    root: Annotated[str, typer.Option(help="remote root to try")] = "",
    config: Annotated[
        Path | None, typer.Option(help="rla_config.yaml from which options not given are taken")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="accept the key without asking (only where the link is safe)")
    ] = False,
) -> None:
    """Show and pin the master's host key, set up a login key, and test the remote root."""
    try:
        remote = load_config(config).remote_setting if config else RemoteSetting()
        changes = {
            "ftp_server": host,
            **({"port": port} if port else {}),
            **({"username": user} if user else {}),
        }
        remote = dataclasses.replace(remote, **changes)  # type: ignore[arg-type]
        private = settings.folder(find_places().state)
        accept = (lambda _: True) if yes else typer.confirm
        login = resolve_login(remote, private, config)
        found = trust(login, root or remote.remote_data_root, private, accept)
    except RlaError as error:
        raise _fail(error) from None
    typer.echo("\n".join(found.say))
    if found.known:  # also with the key alone: status must not continue naming that
        _try_again(find_places().state)
    if not found.ready:
        raise typer.Exit(1)


@transfer_app.command(
    "pull", epilog=examples("rla-agent transfer pull --config rla_config.yaml --data-root data", "rla pull")
)
def pull(  # noqa: PLR0913, PLR0917 - options
    config: ConfigOption,
    data_root: RootOption,
    table: TableOption = "*",
    index: IndexOption = "*",
    since: SinceOption = "",
    until: UntilOption = "",
    kind: KindOption = None,
    *,
    keep_on: Annotated[bool, typer.Option("--follow", help="keep fetching until Ctrl-C")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="with --follow: seconds between checks")] = 5.0,
    as_json: JsonOption = False,
) -> None:
    """Fetch items from the master; local files are not replaced, interrupted ones continue."""
    selection = _selection(table, index, since, until, kind)

    def fetch(session: Session) -> transfer.Tally:
        with _Progress() as progress:
            return transfer.pull(session, str(data_root), selection, progress)

    try:
        loaded = load_config(config)
        if keep_on:
            _follow(loaded, fetch, every, as_json=as_json)
            return
        tally = _with_session(loaded, fetch)
        _summary("fetched", tally, as_json=as_json)
    except RlaError as error:
        raise _fail(error) from None
    if tally.failed:
        raise typer.Exit(1)


def _selection(table: str, index: str, since: str, until: str, kinds: list[str] | None) -> transfer.Selection:
    try:
        return transfer.Selection(table, index, since, until, tuple(kinds) if kinds else DEFAULT_LOG_TYPES)
    except RlaError as error:
        raise _fail(error) from None


def _follow(
    config: Config, fetch: Callable[[Session], transfer.Tally], every_s: float, *, as_json: bool
) -> None:
    target = settings.target(config, settings.folder(find_places().state))

    def tell(tally: transfer.Tally) -> None:
        if tally.files or tally.failed:
            _summary(f"{time.strftime('%H:%M:%S')} fetched", tally, as_json=as_json)

    with suppress(KeyboardInterrupt):
        follow(target.open, fetch, every_s, tell, lambda line: typer.echo(line, err=True))


@transfer_app.command(
    "push", epilog=examples("rla-agent transfer push --config rla_config.yaml --data-root data", "rla push")
)
def push(  # noqa: PLR0913, PLR0917 - options
    config: ConfigOption,
    data_root: RootOption,
    table: TableOption = "*",
    index: IndexOption = "*",
    since: SinceOption = "",
    until: UntilOption = "",
    kind: KindOption = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Send items to the master; files it already has are not replaced."""
    selection = _selection(table, index, since, until, kind)
    try:
        with _Progress() as progress:
            tally = _with_session(
                load_config(config), lambda s: push_items(s, str(data_root), selection, progress)
            )
    except RlaError as error:
        raise _fail(error) from None
    _summary("sent", tally, as_json=as_json)
    if tally.failed:
        raise typer.Exit(1)


@transfer_app.command(
    "verify",
    epilog=examples("rla-agent transfer verify --config rla_config.yaml --data-root data", "rla verify"),
)
def verify(
    config: ConfigOption,
    *,
    data_root: RootOption,
    sizes: Annotated[bool, typer.Option("--sizes", help="presence and size only")] = False,
    sample: Annotated[float, typer.Option(help="fraction of the files to read, 0 to 1")] = 1.0,
    fix: Annotated[bool, typer.Option("--fix", help="send faulty files again")] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the master with what was sent: every file is read and hashed, unless --sizes or --sample."""
    state = find_places().state
    try:
        loaded = load_config(config)
        count, faults = verify_database(state, loaded, data_root, sizes=sizes, sample=sample, fix=fix)
    except RlaError as error:
        raise _fail(error) from None
    lines = [f"{fault.what}: {printable(fault.path)}" for fault in faults]
    again = "; the agent sends them again" if fix and faults else ""
    lines.append(f"{count} file(s) checked, {len(faults)} fault(s){again}")
    listed = [{"fault": fault.what, "path": printable(fault.path)} for fault in faults]
    typer.echo(json.dumps({"checked": count, "faults": listed}) if as_json else "\n".join(lines))
    if faults:
        raise typer.Exit(1)


def verify_database(
    state: Path,
    config: Config,
    data_root: Path,
    *,
    sizes: bool = False,
    sample: float = 1.0,
    fix: bool = False,
) -> tuple[int, list[verifying.Fault]]:
    """`verify` for one database; see `verifying.verify_ledger`.

    Raises:
        RlaError: the ledger knows nothing of this database, or the master cannot be reached.
    """
    target = settings.target(config, settings.folder(state))
    nothing = f"nothing of {data_root} was sent to {report.shown_target(target.name)} from here"
    if not ledger_path(state).exists():  # sqlite3 would make an empty one
        raise RlaError(nothing)
    db = sqlite3.connect(ledger_path(state), timeout=30.0)
    try:
        ledger.upgrade(db, state)
        root = os.fsencode(os.path.abspath(data_root))
        row = db.execute(
            "SELECT id FROM databases WHERE root = ? AND target = ?", (root, target.name)
        ).fetchone()
        if row is None:
            raise RlaError(nothing)
        session = target.open()
        try:
            count, faults = verifying.verify_ledger(session, db, int(row[0]), sizes=sizes, sample=sample)
        finally:
            session.close()
        if fix and faults:
            verifying.repair(db, faults)
    except sqlite3.Error as error:
        raise RlaError(f"the ledger cannot be read: {error}") from error
    finally:
        db.close()
    return count, faults


def _with_session(config: Config, use: Callable[[Session], transfer.Tally]) -> transfer.Tally:
    session: Session = settings.target(config, settings.folder(find_places().state)).open()
    try:
        return use(session)
    finally:
        session.close()


def _summary(verb: str, tally: transfer.Tally, *, as_json: bool) -> None:
    """What was moved; as JSON one line, also of each look that follows."""
    size = report.size_text(tally.bytes)
    text = f"{verb} {tally.files} file(s), {size}; {tally.same} were there already"
    facts = {"files": tally.files, "bytes": tally.bytes, "already_there": tally.same}
    failed_names = [printable(failed) for failed in tally.failed]
    typer.echo(json.dumps({**facts, "failed": failed_names}) if as_json else text)
    if not (tally.files or tally.same or tally.failed):
        typer.echo("no item is selected; see --table, --index, --since, --until and --kind", err=True)
    for failed in failed_names:
        typer.echo(f"failed: {failed}", err=True)


class _Progress:
    """A bar for the file being moved, on a terminal."""

    def __init__(self) -> None:
        from rich.progress import Progress  # noqa: PLC0415 - only when there is something to show

        self._bars = Progress(transient=True)
        self._task = self._bars.add_task("", total=None)

    def __enter__(self) -> transfer.Say:
        self._bars.start()
        return self._say

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _say(self, path: str, done: int, total: int) -> None:
        name = printable(path.rpartition("/")[2])[-40:]
        self._bars.update(self._task, description=name, completed=done, total=total)


__all__ = ["replicate_app", "transfer_app", "trust_command"]
