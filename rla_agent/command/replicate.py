"""The master seen from the command line: `rla-agent replicate …`, `transfer pull | push | verify`, `trust`.

Thin: each reads its arguments, calls one function and prints. Exit code 0: done; 1: something is
wrong with the data (faults, failed files); 2: the master or the settings.

`examine_master` is `rla-agent doctor --master`: one connection, looked at as docs/how-to/master.md wants it.
It tries what the node's login should not be able to do (a shell, forwarding, seeing the server's own
files), names the extensions that a small NAS lacks with what is done instead, and writes, renames
and deletes a test file. It leaves nothing behind. Host key and login are checked as for replication.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rla_agent.command.retain import ConfigOption, KindOption, RootOption, transfer_app
from rla_agent.model.problem import Finding
from rla_agent.replicate import ledger, report, settings, transfer
from rla_agent.replicate import verify as verifying
from rla_agent.replicate.backend.bucket import BucketSession
from rla_agent.replicate.backend.connect import (
    Login,
    open_sftp,
    open_transport,
    resolve_login,
    trust,
    try_out,
)
from rla_agent.replicate.backend.sftp import HARDLINK, POSIX_RENAME, STATVFS, SftpSession
from rla_agent.replicate.backend.target import Session, TargetError
from rla_agent.replicate.readers import Readers
from rla_agent.replicate.settings import Announcer
from rla_agent.replicate.transfer import push as push_items
from rla_client.config.schema import BUCKETS, Config, RemoteSetting, load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.errors import RlaError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.text.command_line import examples, tell_error
from rla_client.contract.text.terminal_text import printable

if TYPE_CHECKING:
    import paramiko

LITTLE_BYTES: Final = 5 << 30
ANSWER_S: Final = 10.0
MAX_BARS: Final = 16
_PROBE: Final = "rla-agent-probe"
_CONNECT_FAILED: Final = 2  # SSH_OPEN_CONNECT_FAILED: it was tried, so it is allowed
_FALLBACKS: Final = {
    POSIX_RENAME: "the old file is moved aside first, so that the name is missing for a moment",
    STATVFS: "a full disk shows as Failure, and is guessed",
    HARDLINK: "files of the same content are stored once per item",
    b"copy-data": "a CSV that lags is continued in place, 32 KiB at a time",
}

replicate_app = typer.Typer(help="Replication to the master node.", no_args_is_help=True)

TableOption = Annotated[str, typer.Option(help="glob for task tables")]
IndexOption = Annotated[str, typer.Option(help="glob for YYYY/MM/DD/name")]
SinceOption = Annotated[str, typer.Option(help="from this date on, YYYY/MM/DD or YYYY/MM/DD/HH-MM-SS-ffffff")]
UntilOption = Annotated[str, typer.Option(help="up to this date")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@contextmanager
def _failures() -> Iterator[None]:
    """What is wrong with the master or the settings ends the command, and is told with its hint."""
    try:
        yield
    except RlaError as error:
        hint = getattr(error, "hint", "")
        tell_error(f"{error}\nhint: {hint}" if hint else error)
        raise typer.Exit(2) from None


def _target(config: Config) -> settings.Target:
    return settings.target(config, settings.folder(find_places().state))


@replicate_app.command(
    "status", epilog=examples("rla-agent replicate status", "rla-agent replicate status --json")
)
def status(*, as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False) -> None:
    """Show the backlog by kind, rate, last success, and parked files with reason and fix."""
    found = report.replication_status(find_places().state)
    typer.echo(json.dumps(found, indent=1) if as_json else report.as_text(found))
    if "error" in found:
        raise typer.Exit(1)


@replicate_app.command(
    "now", epilog=examples("rla-agent replicate now", "rla-agent replicate now data/log/cartpole")
)
def now(
    folders: Annotated[list[Path] | None, typer.Argument(help="item folders; default: everything")] = None,
) -> None:
    """Check for changed files now instead of at the next scan."""
    _announce(find_places().state, folders or ())


def _announce(state: Path, folders: Sequence[Path] = ()) -> None:
    """Wake the worker."""
    with closing(Announcer(state)) as announcer:
        announcer.now(str(folder.absolute()) for folder in folders)


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
    _announce(state)  # it reads the marker then


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
    with _failures():
        configs = [Path(entry.config) for entry in settings.entries(state)] if config is None else [config]
        masters = [settings.target(load_config(path), settings.folder(state)) for path in configs]
        if not masters:
            raise RlaError("no database of this machine goes to a master; name one: --config rla_config.yaml")
        found = {}
        for master in {each.name: each for each in masters}.values():
            with closing(master.open()) as session:
                found[master.name] = report.machines(session)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for target, machines in found.items():
        typer.echo(f"{target}\n{report.machines_text(machines)}")


@replicate_app.command(
    "add",
    epilog=examples("rla-agent replicate add data", "rla-agent replicate add data --config rla_config.yaml"),
)
def add(data_root: Path, config: ConfigOption = Path("rla_config.yaml")) -> None:
    """Replicate an existing database, every item of it; it may be one of the original RLA."""
    with _failures():
        loaded = load_config(config)
        entry = settings.add(find_places().state, data_root, config)
        if not settings.wanted(entry, loaded):
            typer.echo(f"{config} names no master: fill in REMOTE_SETTING.ftp_server (or bucket)", err=True)
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
    with _failures():
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
    with _failures():
        selection = transfer.Selection(table, index, since, until, tuple(kind or DEFAULT_LOG_TYPES))
        target = _target(load_config(config))

        def connect() -> Readers:
            return Readers.opened(target.open, target.connections)

        def fetch(readers: Readers) -> transfer.Tally:
            with _progress() as progress:
                return transfer.pull(readers, str(data_root), selection, progress)

        if keep_on:
            _follow(connect, fetch, every, as_json=as_json)
            return
        with closing(connect()) as readers:
            tally = fetch(readers)
    _told("fetched", tally, as_json=as_json)


def _follow(
    connect: Callable[[], Readers],
    fetch: Callable[[Readers], transfer.Tally],
    every_s: float,
    *,
    as_json: bool,
) -> None:
    def tell(tally: transfer.Tally) -> None:
        if tally.files or tally.failed:
            _summary(f"{time.strftime('%H:%M:%S')} fetched", tally, as_json=as_json)

    with suppress(KeyboardInterrupt):
        transfer.follow(connect, fetch, every_s, tell, lambda line: typer.echo(line, err=True))


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
    with _failures():
        selection = transfer.Selection(table, index, since, until, tuple(kind or DEFAULT_LOG_TYPES))
        with _progress() as progress, closing(_target(load_config(config)).open()) as session:
            tally = push_items(session, str(data_root), selection, progress)
    _told("sent", tally, as_json=as_json)


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
    with _failures():
        loaded = load_config(config)
        count, faults = verify_database(state, loaded, data_root, sizes=sizes, sample=sample, fix=fix)
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
    if not ledger.ledger_path(state).exists():  # sqlite3 would make an empty one
        raise RlaError(nothing)
    root = os.fsencode(os.path.abspath(data_root))
    try:
        with closing(sqlite3.connect(ledger.ledger_path(state), timeout=30.0)) as db:
            ledger.upgrade(db, state)
            ids = "SELECT id FROM databases WHERE root = ? AND target = ?"
            row = db.execute(ids, (root, target.name)).fetchone()
            if row is None:
                raise RlaError(nothing)
            with closing(target.open()) as session:
                count, faults = verifying.verify_ledger(session, db, int(row[0]), sizes=sizes, sample=sample)
            if fix and faults:
                verifying.repair(db, faults)
    except sqlite3.Error as error:
        raise RlaError(f"the ledger cannot be read: {error}") from error
    return count, faults


def _told(verb: str, tally: transfer.Tally, *, as_json: bool) -> None:
    """Tell what was moved, and end with 1 where something failed."""
    _summary(verb, tally, as_json=as_json)
    if tally.failed:
        raise typer.Exit(1)


def _summary(verb: str, tally: transfer.Tally, *, as_json: bool) -> None:
    """What was moved; as JSON one line, also of each look that follows."""
    size = report.size_text(tally.bytes)
    text = f"{verb} {tally.files} file(s), {size}; {tally.same} were there already"
    facts = {"files": tally.files, "bytes": tally.bytes, "already_there": tally.same}
    failed_names = [printable(failed) for failed in tally.failed]
    left_out = [printable(name) for name in tally.left_out]
    typer.echo(json.dumps({**facts, "failed": failed_names, "left_out": left_out}) if as_json else text)
    for name in left_out:
        typer.echo(f"left out: an object of the bucket, for no file has such a key: {name}", err=True)
    if not (tally.files or tally.same or tally.failed):
        typer.echo("no item is selected; see --table, --index, --since, --until and --kind", err=True)
    for failed in failed_names:
        typer.echo(f"failed: {failed}", err=True)


@contextmanager
def _progress() -> Iterator[transfer.Say]:
    """A bar for each large file being moved, on a terminal; the time that is left once it can be told."""
    from rich.console import Console  # noqa: PLC0415 - only when there is something to show
    from rich.progress import Progress, TaskID  # noqa: PLC0415

    lock, count = threading.Lock(), 0
    tasks: dict[str, TaskID] = {}
    with Progress(transient=True, console=Console(stderr=True)) as bars:
        whole = bars.add_task("0 files", total=None)

        def say(path: str, done: int, total: int) -> None:
            nonlocal count
            with lock:
                if done < total:
                    if path not in tasks and len(tasks) < MAX_BARS:
                        tasks[path] = bars.add_task(printable(path.rpartition("/")[2])[-40:], total=total)
                    if path in tasks:
                        bars.update(tasks[path], completed=done)
                    return
                count += 1
                if path in tasks:
                    bars.remove_task(tasks.pop(path))
                bars.update(whole, description=f"{count} files")

        yield say


# -- rla-agent doctor --master ------------------------------------------------------------------


def examine_master(config: Config, private: Path) -> list[Finding]:
    """Look at the master that a config names.

    Args:
        config: with its REMOTE_SETTING.
        private: `<state>/replicate`.

    Returns:
        What is not as docs/how-to/master.md describes it; empty when all is.
    """
    remote = config.remote_setting
    protocol = remote.file_transfer_protocol
    if not remote.named:
        key = "bucket" if protocol in BUCKETS else "ftp_server"
        fix = f"fill in REMOTE_SETTING.{key}, or give --config"
        return [Finding("master-unnamed", "fault", "the configuration names no master", fix)]
    findings = []
    if not config.send_log_file:
        fix = "SEND_LOG_FILE: true, or: rla-agent replicate add DATA_ROOT"
        findings.append(Finding("master-off", "note", "SEND_LOG_FILE is off: runs are not replicated", fix))
    if remote.password:
        fix = "use a key (rla-agent trust), or password_env or credentials_file"
        findings.append(Finding("master-password", "warning", "the config holds a password", fix))
    if protocol == "ftp":
        what = "FTP sends password and files in the clear, cannot append safely, and may not keep permissions"
        findings.append(Finding("master-ftp", "warning", what, "file_transfer_protocol: sftp"))
    try:
        if protocol == "sftp":
            login = resolve_login(remote, private, config.path)
            findings += _closed_down(login)
            session: Session = open_sftp(login, remote.remote_data_root)
        else:
            session = settings.target(config, private).open()
        with closing(session):
            findings += _at_work(session)
        if protocol in BUCKETS and remote.endpoint.startswith("http://"):
            what = (
                "the store is reached without encryption: whoever listens in reads and changes what is sent"
            )
            findings.append(Finding("master-http", "warning", what, "REMOTE_SETTING.endpoint: https://…"))
    except TargetError as error:
        what = f"the master does not take files: {error}"
        findings.append(Finding("master-refuses", "fault", what, error.hint or "see docs/how-to/master.md"))
    except RlaError as error:
        findings.append(Finding("master-refuses", "fault", str(error), "see docs/how-to/master.md"))
    return findings


def _at_work(session: Session) -> list[Finding]:
    findings = []
    for what in try_out(session)[1:]:
        fix = "let the server set permissions: its file system must keep them, setstat must not be denied"
        findings.append(Finding("master-modes", "warning", what, fix))
    free = session.free_bytes()
    if free is not None and free < LITTLE_BYTES:
        what = f"the master has {free / 2**30:.1f} GiB free"
        fix = "free space there; sending stops when it is full"
        findings.append(Finding("master-space", "warning", what, fix))
    if isinstance(session, BucketSession) and not session.heeds_conditions():
        what = "the store ignores If-None-Match: if two machines write one file, one version may be lost"
        fix = "use a store with conditional writes (AWS S3, GCS, Azure, a recent MinIO)"
        findings.append(Finding("master-no-conditions", "warning", what, fix))
    if isinstance(session, SftpSession):
        for extension, instead in _FALLBACKS.items():
            if extension not in session.extensions:
                name = extension.decode().partition("@")[0]
                what = f"the master's SFTP server has no {name}: {instead}"
                findings.append(Finding(f"master-no-{name}", "note", what, "OpenSSH has it"))
        if session.reaches(b"/etc/passwd"):
            what = "the login sees the whole file system of the master"
            fix = "ChrootDirectory in sshd_config, see docs/how-to/master.md"
            findings.append(Finding("master-chroot", "note", what, fix))
    return findings


def _closed_down(login: Login) -> list[Finding]:
    findings = []
    with closing(open_transport(login)) as transport:
        if _runs_commands(transport):
            what = f"{login.user} may run commands on the master"
            fix = f"ForceCommand internal-sftp for {login.user} in the master's sshd_config"
            findings.append(Finding("master-shell", "warning", what, fix))
        if _forwards(transport):
            what = f"{login.user} may forward connections through the master"
            fix = "AllowTcpForwarding no there, or `restrict` before the key in authorized_keys"
            findings.append(Finding("master-forwarding", "warning", what, fix))
    return findings


def _runs_commands(transport: paramiko.Transport) -> bool:
    import paramiko  # noqa: PLC0415

    with suppress(paramiko.SSHException, EOFError, OSError):
        channel = transport.open_session(timeout=ANSWER_S)
        channel.settimeout(ANSWER_S)
        channel.exec_command(f"echo {_PROBE}")
        channel.shutdown_write()
        return _PROBE.encode() in channel.recv(1024)
    return False


def _forwards(transport: paramiko.Transport) -> bool:
    import paramiko  # noqa: PLC0415

    try:
        transport.open_channel("direct-tcpip", ("127.0.0.1", 1), ("127.0.0.1", 0), timeout=ANSWER_S).close()
    except paramiko.ChannelException as error:
        return bool(error.code == _CONNECT_FAILED)
    except (paramiko.SSHException, EOFError, OSError):
        return False
    return True
