"""Options that the commands of `rla` share, what Tab offers for them, finding the database, choosing runs.

A Tab is answered at once or not at all: a database that cannot be read, or that takes too long (see `app`),
offers nothing and prints nothing. What was read until then is kept, so the next Tab gets further.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.contract.errors import (
    AmbiguousRunError,
    ArgumentError,
    DatabaseError,
    RlaError,
    UnknownNameError,
)
from rla_client.contract.layout import ARCHIVE_TESTER, ARCHIVED_TABLE, HYPARAMETER, LOG
from rla_client.contract.text.command_line import examples
from rla_client.contract.text.spelling import hint, unknown
from rla_client.database.tree.data_root import (
    SEARCH_DEPTH,
    NoRunsYetError,
    find_data_root,
    is_data_root,
    roots_below,
)

if TYPE_CHECKING:
    from rla_client.database.records.record import Record
    from rla_client.database.runs import Database

BEGIN, LOOK, TAKE = "Begin and repeat runs", "Look at runs", "Take out, bring in"
CHANGE, CHECK, MASTER = "Change runs", "Check the database", "The master"
"""Groups of commands in `rla --help`."""
MAX_OFFERED = 100  # newest runs; more is no help on a screen
MAX_ASKED = 1000  # newest runs whose parameters are offered
TIME_PLACE = len("2026/11/21/")
MOMENT = "%Y-%m-%d %H:%M:%S"
MANY = 300  # runs to read from which on a terminal is told how far it is
MOST_SHOWN = 1_000_000_000  # rows or lines that can be asked for; far more do not fit the types below
KEYWORD_ONLY = Parameter.KEYWORD_ONLY
names_wanted: list[str] = []  # what a Tab looked for names with: the shell shall not offer files then


def complete_run(ctx: typer.Context, incomplete: str) -> list[str]:
    """`@last`, dates, times of the day, and tracked parameters such as `seed=1`, of the newest runs."""
    if "=" not in incomplete:
        offered = ["@last"]
        for record in reversed(_newest(ctx, light=True)):
            offered += [record.date, record.date[TIME_PLACE:]]
        found = _matching(offered, incomplete)
        if found or not incomplete:
            return found
    before, mark, _ = incomplete.rpartition("&")
    pairs = [
        f"{before}{mark}{name}={value}"
        for record in reversed(_newest(ctx, limit=MAX_ASKED, light=True))
        if all(f"&{part}&" in f"{record.index}&" for part in before.split("&") if part)
        for name, value in record.tracked.items()
    ]
    return _matching(sorted(pairs, key=lambda pair: (len(pair), pair)), incomplete)


def complete_table(ctx: typer.Context, incomplete: str) -> list[str]:
    """Task tables."""
    database = _database(ctx)
    return _matching(database.tables() if database else [], incomplete)


def complete_tag(ctx: typer.Context, incomplete: str) -> list[str]:
    """Tags of the newest runs."""
    return _matching(sorted(tag for record in _newest(ctx, light=True) for tag in record.tags), incomplete)


def complete_state(incomplete: str) -> list[str]:
    """States that runs have."""
    from rla_client.database.records.record import STATES

    return _matching(STATES, incomplete)


def complete_metric(ctx: typer.Context, incomplete: str) -> list[str]:
    """Columns that the newest run has."""
    return _matching((name for record in _newest(ctx, limit=1) for name in record.metrics), incomplete)


def complete_parameters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Hyper-parameters of the newest runs, several separated by commas."""
    return _behind_comma(incomplete, _parameters(ctx))


def complete_columns(ctx: typer.Context, incomplete: str) -> list[str]:
    """What runs can be listed by, several separated by commas."""
    return _behind_comma(incomplete, _columns(ctx))


def complete_sort(ctx: typer.Context, incomplete: str) -> list[str]:
    """What runs can be sorted by; behind a `-` typer offers options."""
    return _matching(_columns(ctx), incomplete)


def _parameters(ctx: typer.Context) -> list[str]:
    return [name for record in reversed(_newest(ctx)) for name in record.hyper.flat()]


def _columns(ctx: typer.Context) -> list[str]:
    from rla_client.database.records.row_view import ALIASES, FIELDS

    metrics = (name for record in _newest(ctx, limit=1) for name in record.metrics)
    return [*_parameters(ctx), *metrics, *FIELDS, *ALIASES]


def _behind_comma(incomplete: str, names: Iterable[str]) -> list[str]:
    before, mark, _ = incomplete.rpartition(",")
    return _matching((f"{before}{mark}{name}" for name in names), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Each name that continues from what was typed, once."""
    names_wanted.append(incomplete)
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _newest(ctx: typer.Context, *, limit: int = MAX_OFFERED, light: bool = False) -> list[Record]:
    """The newest runs, oldest first; none where there is no database, or it cannot be read."""
    database = _database(ctx)
    try:
        return database.records(limit=limit, light=light) if database is not None else []
    except (RlaError, OSError):
        return []


def _database(ctx: typer.Context) -> Database | None:
    from rla_client.database.runs import Database

    given = ctx.params.get("data_root")
    try:
        return Database(given if given is not None else find_data_root(Path.cwd()))
    except (RlaError, OSError):
        return None


DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root", "-d", envvar="RLA_DATA_ROOT", help="The database: the folder that holds log/."
    ),
]
TableOption = Annotated[
    str | None, typer.Option("--table", "-t", help="Only this task table.", autocompletion=complete_table)
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        help="Only runs that match, e.g. \"lr == 0.001 and state == 'finished' and took > 60\".",
    ),
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only runs started since then: 2026/11/21, 36h, 7d.")
]
Archived = Annotated[bool, typer.Option("--archived", help="Archived runs (those under arc/) instead.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Columns = Annotated[
    str | None,
    typer.Option("--columns", "-c", help="Columns, separated by commas.", autocompletion=complete_columns),
]
_RUN_HELP = "Index, a unique part of it (quote one with &), or @last."
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help=_RUN_HELP, autocompletion=complete_run)]
RunArguments = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help=_RUN_HELP, autocompletion=complete_run)
]
_Fitting = Annotated[
    list[str] | None,
    typer.Option(
        "--run",
        "-r",
        metavar="RUN",
        help="All runs that match, e.g. 'lr=0.1&seed=3' (repeatable).",
        autocompletion=complete_run,
    ),
]
_WithTag = Annotated[
    list[str] | None,
    typer.Option("--tag", help="Only runs with this tag (repeatable).", autocompletion=complete_tag),
]
_WithState = Annotated[
    list[str] | None,
    typer.Option(
        "--state", help="Only runs in this state, e.g. failed,killed.", autocompletion=complete_state
    ),
]
OtherRun = Annotated[
    str, typer.Argument(metavar="OTHER_RUN", help="The run to compare with.", autocompletion=complete_run)
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric", "-m", help="This column of progress.csv (repeatable).", autocompletion=complete_metric
    ),
]


def add_command(
    app: typer.Typer, function: Callable[..., None], panel: str | None, *lines: str, name: str | None = None
) -> None:
    """Put a command on an app.

    Args:
        app: of `rla`, or of a group of commands.
        function: does it.
        panel: its group in `rla --help`; None below a group of commands.
        lines: examples at the end of its help.
        name: None: as the function is called.
    """
    app.command(name or function.__name__, rich_help_panel=panel, epilog=examples(*lines))(function)


def open_database(data_root: Path | None, *, archived: bool = False, new: bool = False) -> Database:
    """The database of a command.

    Args:
        data_root: as given; None looks for it from here.
        archived: the runs under arc/ instead.
        new: for a command that puts runs there: a folder that holds none yet will do, and is made where it is
            the last of its path that is missing.

    Raises:
        NoRunsYetError: it, or its archive, holds nothing yet.
        DatabaseError: there is none, or it cannot be told which.
    """
    from rla_client.database.runs import Database

    if data_root is None:
        data_root = find_data_root(Path.cwd(), new=new)
    if new and not data_root.exists() and data_root.absolute().parent.is_dir():
        data_root.mkdir(exist_ok=True)
        say_aside(f"{data_root} is a new database")
    database = Database(data_root)
    if not new:
        _check_holds_database(database.data_root)
    if archived:
        if not (database.data_root / ARCHIVED_TABLE).is_dir():
            raise NoRunsYetError(
                f"nothing is archived yet in {database.data_root}; `rla archive RUN` copies runs there"
            )
        database = database.archived
    if sys.stderr.isatty():
        database.progress = _progress
    return database


def _check_holds_database(folder: Path) -> None:
    """Tell a database without runs from a folder that is none; the error names the one that was meant."""
    if any((folder / name).is_dir() for name in (LOG, ARCHIVE_TESTER, HYPARAMETER, ARCHIVED_TABLE)):
        return
    near = [parent for parent in folder.parents if is_data_root(parent)][:1]
    with suppress(OSError):  # a folder that may not be listed: the error below says enough
        near = near or roots_below(folder, SEARCH_DEPTH)
    advice = f"--data-root {near[0]}" if len(near) == 1 else "give the folder that holds log/"
    raise DatabaseError(f"{folder} holds no database\nhint: {advice}")


def _progress(done: int, total: int) -> None:
    if total >= MANY:
        end = "\n" if done + 500 >= total else ""
        print(f"\rreading {done} of {total} runs…", end=end, file=sys.stderr, flush=True)  # noqa: T201


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs that a command was asked for."""

    named: tuple[str, ...] = ()  # as RUN arguments
    fitting: tuple[str, ...] = ()  # with `--run`: each stands for every run that it fits
    table: str | None = None  # only of this task table
    where: str | None = None  # only those that pass, with the filters of `--tag` and `--state` in it
    since: str | None = None  # only those begun since
    tags: tuple[str, ...] = ()  # that all of them have

    @property
    def given(self) -> bool:
        """Whether anything was said about which runs are meant."""
        return any((self.named, self.fitting, self.table, self.where, self.since))

    def records(self, database: Database, *, one_each: bool = False, light: bool = False) -> list[Record]:
        """The runs, oldest first; without a word about which, all.

        Args:
            database: where they are.
            one_each: a RUN argument names one run, for commands that change runs; else it is as `--run`.
            light: without hyper-parameters and metrics where nothing needs them.

        Raises:
            DatabaseError: a reference fits none, or several where one is meant. ArgumentError: a bad
                filter, or a tag that no run has.
        """
        found: dict[tuple[str, str], Record] = {}
        for reference in (*self.named, *self.fitting):
            one = one_each and reference not in self.fitting
            records = [self._one(database, reference)] if one else database.find_all(reference, self.table)
            found.update({(record.table, record.index): record for record in records})
        if found and self.where is None and self.since is None:
            return sorted(found.values(), key=lambda record: (record.opened, record.index))
        passed = database.records(self.table, self.where, self.since, light=light)
        if not passed and self.tags:
            self._check_tags(database)
        return [one for one in passed if not found or (one.table, one.index) in found]

    def some(self, database: Database, *, one_each: bool = False, light: bool = False) -> list[Record]:
        """As `records`, at least one; ArgumentError where no run matches."""
        found = self.records(database, one_each=one_each, light=light)
        if not found:
            raise ArgumentError("no run matches")
        return found

    def _one(self, database: Database, reference: str) -> Record:
        try:
            return database.find(reference, self.table).record
        except AmbiguousRunError as error:
            raise AmbiguousRunError(f"{error}\nhint: for all of them: -r {shlex.quote(reference)}") from error

    def _check_tags(self, database: Database) -> None:
        known = {tag for record in database.records(self.table, light=True) for tag in record.tags}
        for tag in self.tags:
            if tag not in known:
                advice = hint(tag, sorted(known)) or "rla tag RUN TAG adds one"
                raise UnknownNameError(f"no run has the tag {tag!r}\nhint: {advice}")


def _selection(values: Mapping[str, Any]) -> Selection:
    """What the options of `takes_runs` say together; ArgumentError for a bad filter or state."""
    from rla_client.database.records.record import STATES

    where, tags = values["where"], tuple(values["with_tag"] or ())
    filters = []
    if where is not None:
        from rla_client.database.filter.filter_language import Where as Filter

        Filter(where)  # by itself, so that its faults are shown as it was written
        filters.append(f"({where})")
    filters += [f"{tag!r} in tags".replace("`", "\\x60") for tag in tags]
    states = [state.strip() for text in values["state"] or () for state in text.split(",")]
    for state in states:
        if state not in STATES:
            raise unknown(state, STATES, f"runs have no state {state!r}")
    filters += [f"state in {states!r}"] if states else []
    return Selection(
        tuple(values.get("runs") or ()),
        tuple(values["run"] or ()),
        values["table"],
        " and ".join(filters) or None,
        values["since"],
        tags,
    )


def takes_runs(*, argument: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that select runs; it gets what they say as its parameter `chosen`.

    Args:
        argument: the command takes RUN arguments, too.
    """
    options: dict[str, Any] = {
        **({"runs": RunArguments} if argument else {}),
        "run": _Fitting,
        "with_tag": _WithTag,
        "state": _WithState,
        "where": Where,
        "since": Since,
        "table": TableOption,
    }

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def selecting(**values: object) -> None:
            chosen = _selection(values)
            command(chosen=chosen, **{name: values[name] for name in values if name not in options})

        added = [Parameter(key, KEYWORD_ONLY, default=None, annotation=kind) for key, kind in options.items()]
        parameters: list[Parameter] = []
        for name, own in signature(command, eval_str=True).parameters.items():
            parameters += added if name == "chosen" else [own.replace(kind=KEYWORD_ONLY)]
        selecting.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        selecting.__annotations__ = {one.name: one.annotation for one in parameters}
        return selecting

    return wrap


def say(text: str) -> None:
    """Print to stdout."""
    print(text)  # noqa: T201


def say_aside(text: str) -> None:
    """Print to stderr: what is not the answer itself."""
    from rla_client.database.text.safe_text import lines_text

    print(lines_text(text), file=sys.stderr)  # noqa: T201


def teller(*, as_json: bool) -> Callable[[str], None]:
    """Where a command says what it is about to do: beside the answer where that is JSON."""
    return say_aside if as_json else say


def print_done(facts: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Say what a command did, in the form that was asked for."""
    from rla_client.database.text.machine_text import json_text

    say(json_text(facts) if as_json else text)


def held(data_root: Path) -> AbstractContextManager[None]:
    """Hold a database for a change; where another command holds it, say why nothing happens."""
    from rla_client.database.changes.change_lock import changing
    from rla_client.database.clock import clock

    waiting = "waiting for another rla command that changes this database…"
    return changing(data_root, clock(), lambda: say_aside(waiting))


def print_rows(
    names: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool, as_csv: bool
) -> None:
    """Print a table in the form that was asked for."""
    from rla_client.database.text.machine_text import csv_text, json_text
    from rla_client.database.text.text_tables import table_text

    if as_json:
        say(json_text([dict(zip(names, row, strict=True)) for row in rows]))
    elif as_csv:
        say(csv_text(names, rows))
    else:
        say(table_text(names, rows))


def agree(question: str, yes: bool) -> None:
    """Ask y/n; without a terminal and without --yes the answer is no, and said so.

    Raises:
        typer.Exit: the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        say_aside("Not a terminal: pass --yes to confirm. Nothing was changed.")
        raise typer.Exit(1)
    if not typer.confirm(question):
        raise typer.Exit(1)
