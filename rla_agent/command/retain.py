"""What is deleted, here or on the master, and how it comes back: `rla-agent prune`, and parts of `transfer`.

`rla-agent prune` frees local disk of what is on the master. It shows what would go; `--apply` does it.

`rla-agent transfer remove | allow | lacks | trash | fetch`: deleting on the master, fetching from it.
`rla rm` calls `remove` and `lacks`. The first three read the runs (`table/YYYY/MM/DD/name`) from the command
line, or with `-` from stdin: one a line, or, for names with line breaks in them, with a NUL after each.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rla_agent.replicate import master_trash, settings
from rla_agent.replicate.backend.target import Session
from rla_agent.replicate.fetch_back import fetch_back
from rla_agent.replicate.ledger import PRUNED, STEPS, ledger_path
from rla_agent.replicate.prune import MAX_AT_ONCE, Done, Plan, Pruner, Rules, rules_of
from rla_agent.replicate.report import shown_target, size_text
from rla_agent.replicate.worker.source import Scanner, Scope
from rla_agent.store.sqlite import connect_readonly
from rla_client.config.schema import load_config
from rla_client.contract.agent.places import find_places
from rla_client.contract.checkpoint.prune_notes import PRUNABLE, pruned_files
from rla_client.contract.errors import ArgumentError, RlaError
from rla_client.contract.layout import DEFAULT_LOG_TYPES
from rla_client.contract.process.account import user_name
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.terminal_text import printable

EXIT_STAYED, EXIT_MASTER = 1, 2
SHOWN: Final = 20  # files; --json lists all
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_FACTORS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
DAY_S: Final = 86400.0

transfer_app = typer.Typer(help="Fetch from, send to and verify the master by hand.", no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option("--config", help="the project's rla_config.yaml")]
RootOption = Annotated[Path, typer.Option("--data-root", help="the local data root")]
ItemsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN...", help="table/YYYY/MM/DD/name; - reads stdin")
]
KindOption = Annotated[list[str] | None, typer.Option("--kind", help="data kind; may be given several times")]


@contextmanager
def _failures() -> Iterator[None]:
    """What goes wrong ends the command, and is told with its hint."""
    try:
        yield
    except (RlaError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        if hint := getattr(error, "hint", ""):
            typer.echo(f"  → {hint}", err=True)
        raise typer.Exit(EXIT_MASTER) from None


@contextmanager
def _master(config: Path) -> Iterator[tuple[str, Session]]:
    """The name of the master that a configuration names, and a session with it."""
    target = settings.target(load_config(config), settings.folder(find_places().state))
    with closing(target.open()) as session:
        yield target.name, session


def _items(given: list[str]) -> list[str]:
    words = given
    if given == ["-"]:
        data = sys.stdin.buffer.read()
        words = [os.fsdecode(word) for word in data.split(b"\0" if b"\0" in data else b"\n")]
    return [master_trash.check_item(word) for word in words if word]


@transfer_app.command(
    "remove",
    epilog=examples(
        "rla-agent transfer remove --config rla_config.yaml --data-root data RUN", "rla rm --master @last"
    ),
)
def remove(
    items: ItemsArgument, config: ConfigOption, data_root: RootOption, kind: KindOption = None
) -> None:
    """Move runs to the master's trash; tombstones there keep machines from sending them again."""
    kinds = tuple(kind) if kind else DEFAULT_LOG_TYPES
    with _failures():
        chosen = _items(items)
        with _master(config) as (name, session):
            about = {"host": socket.gethostname(), "user": user_name() or str(os.getuid())}
            entry = master_trash.move_to_trash(session, chosen, kinds, about, time.time())
        subjects = master_trash.subjects_of(chosen, kinds)
        master_trash.bury_here(find_places().state, str(data_root), name, subjects)
    there = shown_target(name)
    if entry.moves:
        typer.echo(f"moved {len(entry.moves)} item(s) to the trash of {there} as {entry.name}")
        typer.echo(f"undo there: rla-agent transfer trash --config {config} --restore {entry.name}")
    else:
        typer.echo(f"{there} had nothing of these runs; nobody will send them there from now on")
        named = shlex.quote(chosen[0]) if len(chosen) == 1 else "RUN..."
        typer.echo(f"undo there: rla-agent transfer allow --config {config} {named}")


@transfer_app.command(
    "allow",
    epilog=examples(
        "rla-agent transfer allow --config rla_config.yaml RUN",
        "rla-agent transfer allow --config rla_config.yaml - < runs.txt",
    ),
)
def allow(items: ItemsArgument, config: ConfigOption, kind: KindOption = None) -> None:
    """Allow removed runs to be sent to the master again; its trash stays as it is."""
    with _failures():
        subjects = master_trash.subjects_of(_items(items), tuple(kind) if kind else DEFAULT_LOG_TYPES)
        with _master(config) as (name, session):
            count = master_trash.drop_tombstones(session, subjects)
        settings.ask_retry(find_places().state)
    there = shown_target(name)
    if count:
        typer.echo(f"took {count} tombstone(s) off {there}; these runs are sent there again")
        typer.echo("on other machines that hold them: rla-agent replicate retry")
    else:
        typer.echo(f"{there} has no tombstone of these runs; nothing keeps them from being sent there")


@transfer_app.command(
    "lacks",
    epilog=examples(
        "rla-agent transfer lacks --data-root data RUN",
        "rla-agent transfer lacks --data-root data --kind checkpoint RUN",
    ),
)
def lacks(items: ItemsArgument, data_root: RootOption, kind: KindOption = None) -> None:
    """Print as JSON what no master has yet of these runs (files, bytes) and how many are pruned."""
    with _failures():
        typer.echo(json.dumps(_lacking(_items(items), data_root, tuple(kind) if kind else DEFAULT_LOG_TYPES)))


def _lacking(items: list[str], data_root: Path, kinds: tuple[str, ...]) -> dict[str, int]:
    root = os.fsencode(os.path.realpath(data_root))
    scanner = Scanner(root, Scope(host="", kinds=kinds))
    found = {"replicated": False, "files": 0, "bytes": 0, "pruned": 0}
    try:
        with closing(connect_readonly(ledger_path(find_places().state), STEPS)) as db:
            roots = (root, os.fsencode(os.path.abspath(data_root)))  # `replicate add` keeps links
            numbers = [row[0] for row in db.execute("SELECT id FROM databases WHERE root IN (?, ?)", roots)]
            found["replicated"] = bool(numbers)
            for item in items if numbers else ():
                for folder in [*scanner.item(item), *scanner.archives(item)]:
                    there = _on_a_master(db, numbers, folder.path)
                    for name, local in folder.files.items():
                        if there.get(name) != (local.size, local.mtime_ns):
                            found["files"] += 1
                            found["bytes"] += local.size
                    found["pruned"] += len(pruned_files(os.fsdecode(os.path.join(root, folder.path))))
    except sqlite3.Error as error:
        raise RlaError(f"the ledger cannot be read: {error}") from None
    found["files"] += len(scanner.unread)  # at least; nobody can tell
    return found


def _on_a_master(db: sqlite3.Connection, numbers: list[int], folder: bytes) -> dict[bytes, tuple[int, int]]:
    """Name → (size, mtime_ns) of a folder's files that are wholly on some master."""
    marks = ", ".join("?" * len(numbers))
    rows = db.execute(
        "SELECT f.name, f.size, f.mtime_ns FROM folders d JOIN files f ON f.folder = d.id "  # noqa: S608 - places only
        f"WHERE d.path = ? AND d.db IN ({marks}) AND f.state IN (0, {PRUNED}) AND f.acked = f.size",
        (folder, *numbers),
    )
    return {row[0]: (row[1], row[2]) for row in rows}


@transfer_app.command(
    "trash",
    epilog=examples(
        "rla-agent transfer trash --config rla_config.yaml",
        "rla-agent transfer trash --config rla_config.yaml --restore ENTRY",
    ),
)
def trash(
    config: ConfigOption,
    *,
    restore: Annotated[str, typer.Option(help="move this entry back, and let it be sent again")] = "",
    empty: Annotated[bool, typer.Option("--empty", help="delete its content for good")] = False,
    older_than_days: Annotated[
        float, typer.Option(min=0, help="with --empty: only entries at least this old")
    ] = 0.0,
) -> None:
    """The master's trash: list (default), restore an entry, empty it."""
    with _failures():
        if restore and empty:
            raise ArgumentError("choose one of --restore and --empty")
        with _master(config) as (name, session):
            if restore:
                entry = master_trash.restore(session, restore)
                typer.echo(f"restored {len(entry.moves)} item(s) on {shown_target(name)}")
                settings.ask_retry(find_places().state)
            elif empty:
                count = master_trash.empty(session, older_than_days * DAY_S, time.time())
                typer.echo(f"deleted {count} entry(ies) from the trash of {shown_target(name)}")
            else:
                for entry in master_trash.entries(session):
                    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.created))
                    first = printable(os.fsdecode(entry.moves[0][0])) if entry.moves else ""
                    typer.echo(f"{entry.name}  {when}  {len(entry.moves)} item(s)  {first}")


@transfer_app.command(
    "fetch",
    epilog=examples(
        "rla-agent transfer fetch data/checkpoint/cartpole",
        "rla-agent transfer fetch model.pt --config rla_config.yaml",
    ),
)
def fetch(
    paths: Annotated[list[Path], typer.Argument(help="pruned files, or folders that contain some")],
    config: Annotated[Path | None, typer.Option("--config", help="rla_config.yaml of the project")] = None,
) -> None:
    """Bring pruned files back from the master."""
    state = find_places().state
    count = size = 0
    with _failures():
        for folder, name in [one for path in paths for one in _pruned(path)]:
            size += fetch_back(state, folder, name, None if config is None else str(config))
            count += 1
    typer.echo(f"fetched {count} file(s), {size_text(size)}")


def _pruned(path: Path) -> list[tuple[str, str]]:
    if not path.is_dir():
        return [(str(path.absolute().parent), path.name)]
    return [(here, note.name) for here, _, _ in os.walk(path.absolute()) for note in pruned_files(here)]


# -- rla-agent prune ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A database, where it goes, and by which rules it is pruned."""

    root: str
    target: settings.Target
    rules: Rules


def prune(  # noqa: PLR0913 - options
    *,
    data_root: Annotated[
        Path | None, typer.Option("--data-root", help="Only this database; default: all that are replicated.")
    ] = None,
    older_than: Annotated[str, typer.Option(help="Only files unchanged for this long: 12h, 30d, 8w.")] = "",
    max_bytes: Annotated[
        str, typer.Option("--max", help="Delete the oldest files until the rest takes at most this: 200G.")
    ] = "",
    free: Annotated[
        str, typer.Option(help="Delete the oldest files until this much disk is free: 100G.")
    ] = "",
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="checkpoint (the default), results, tmp_data; repeatable."),
    ] = None,
    keep: Annotated[
        int, typer.Option(min=1, help="How many of the newest checkpoints of each name to keep.")
    ] = 1,
    sha256: Annotated[
        bool,
        typer.Option("--sha256/--sizes", help="Read each file back from the master before deleting it here."),
    ] = True,
    apply: Annotated[
        bool, typer.Option("--apply", help="Delete; without it, only list what would be deleted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Free local disk: delete files that are on the master; loading one fetches it back."""
    with _failures():
        asked = _rules(older_than, max_bytes, free, tuple(kind or ("checkpoint",)), keep)
        chosen = list(_databases(find_places().state, data_root, asked))
        if not chosen:
            what = "no database is replicated" if data_root is None else f"{data_root} is not replicated"
            raise ArgumentError(
                f"{what} from here, so nothing can be pruned; see: rla-agent replicate status"
            )
        results = [_one(one, sha256=sha256, apply=apply, as_json=as_json) for one in chosen]
    if as_json:
        typer.echo(json.dumps({"applied": apply, "databases": results}, indent=1))
    if any(result["stayed"] for result in results):
        raise typer.Exit(EXIT_STAYED)


def _rules(older_than: str, max_bytes: str, free: str, kinds: tuple[str, ...], keep: int) -> Rules | None:
    for kind in kinds:
        if kind not in PRUNABLE:
            raise ArgumentError(f"{kind} is never pruned; kinds that are: {', '.join(PRUNABLE)}")
    limits = seconds_of(older_than), bytes_of(max_bytes, "--max"), bytes_of(free, "--free")
    given = (("--older-than", older_than), ("--max", max_bytes), ("--free", free))
    for (option, text), value in zip(given, limits, strict=True):
        if text and value == 0:
            raise ArgumentError(
                f"{option} {text} is not above 0; to prune everything that may be pruned: --older-than 1s"
            )
    rules = Rules(kinds, *limits, keep)
    return None if rules.empty else rules


def seconds_of(text: str) -> float:
    """`30d` in seconds; 0 of an empty text.

    Raises:
        ArgumentError: it is not an age.
    """
    match = _AGE.fullmatch(text.strip())
    if text and match is None:
        raise ArgumentError(f"{text!r} is not an age; write 12h, 30d or 8w")
    return float(match[1]) * _SECONDS[match[2]] if match else 0.0


def bytes_of(text: str, option: str) -> int:
    """`100G` in bytes; 0 of an empty text.

    Raises:
        ArgumentError: it is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if text and match is None:
        raise ArgumentError(f"{option} {text!r} is not a size; write 500M, 100G or 2T")
    return int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0


def _databases(state: Path, data_root: Path | None, asked: Rules | None) -> Iterator[_Chosen]:
    wanted = None if data_root is None else os.path.realpath(data_root)
    for entry in settings.entries(state):
        if wanted is not None and os.path.realpath(entry.data_root) != wanted:
            continue
        config = load_config(entry.config)
        if settings.wanted(entry, config):
            target = settings.target(config, settings.folder(state))
            if asked is None and not config.agent.retention:
                known = "--older-than 30d, --max 200G or --free 100G (or set AGENT.retention)"
                raise ArgumentError(f"say what may be deleted: {known}")
            yield _Chosen(entry.data_root, target, asked or rules_of(config.agent, entry.data_root))


def _one(one: _Chosen, *, sha256: bool, apply: bool, as_json: bool) -> dict[str, Any]:
    done: list[Done] = []
    with closing(Pruner(find_places().state, one.root, one.target.name)) as pruner:
        plan = pruner.plan(one.rules, time.time())
        try:
            if apply and plan.chosen:
                with closing(one.target.open()) as session:
                    done.extend(pruner.carry_out(plan, session, deep=sha256))
        except RlaError:
            if done and not as_json:
                _say(one, plan, done, apply=apply)  # what was freed before the link broke
            raise
    if not as_json:
        _say(one, plan, done, apply=apply)
    gone = [entry for entry in done if not entry.stays]
    return {
        "data_root": one.root,
        "target": one.target.name,
        "kept": dict(plan.kept),
        "planned": [{"path": os.fsdecode(file.path), "bytes": file.local.size} for file in plan.chosen],
        "freed_bytes": sum(entry.size for entry in gone),
        "gone": [entry.path for entry in gone],
        "stayed": {entry.path: entry.stays for entry in done if entry.stays},
    }


def _say(one: _Chosen, plan: Plan, done: list[Done], *, apply: bool) -> None:
    typer.echo(f"{printable(one.root)} → {shown_target(one.target.name)}")
    typer.echo(
        f"  files of these kinds take {size_text(plan.used_bytes)} here, {size_text(plan.free_bytes)} free"
    )
    if not apply:
        for file in plan.chosen[:SHOWN]:
            typer.echo(f"  {size_text(file.local.size):>10}  {printable(os.fsdecode(file.path))}")
        if len(plan.chosen) > SHOWN:
            typer.echo(f"  … and {len(plan.chosen) - SHOWN} more")
        then = "; nothing was done: add --apply" if plan.chosen else ""
        typer.echo(f"  would free {size_text(plan.bytes)} in {len(plan.chosen)} file(s){then}")
        _say_more(plan)
        return
    gone = [entry for entry in done if not entry.stays]
    typer.echo(f"  freed {size_text(sum(entry.size for entry in gone))} in {len(gone)} file(s)")
    _say_more(plan)
    for entry in done:
        if entry.stays:
            typer.echo(f"  stays: {printable(entry.path)}: {entry.stays}", err=True)


def _say_more(plan: Plan) -> None:
    if plan.kept:
        reasons = sorted(plan.kept.items(), key=lambda entry: -entry[1])
        typer.echo("  kept: " + ", ".join(f"{reason} {count}" for reason, count in reasons))
    if len(plan.chosen) == MAX_AT_ONCE:
        typer.echo(f"  {MAX_AT_ONCE} files at most are pruned at once: run it again for more")
