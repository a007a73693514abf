"""Options that the commands of `rla` share, finding the database, and choosing runs."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rla_client.cli.completion import (
    complete_columns,
    complete_metric,
    complete_run,
    complete_state,
    complete_table,
    complete_tag,
)
from rla_client.contract.errors import DatabaseError, UnknownNameError
from rla_client.database.tree import (
    SEARCH_DEPTH,
    NoRunsYetError,
    find_data_root,
    is_data_root,
    roots_below,
)

if TYPE_CHECKING:
    from rla_client.database.records import Record
    from rla_client.database.runs import Database

BEGIN, LOOK, TAKE = "Begin and repeat runs", "Look at runs", "Take out, bring in"
CHANGE, CHECK, MASTER = "Change runs", "Check the database", "The master"
"""Groups of commands in `rla --help`."""
MANY = 300  # runs to read from which on a terminal is told how far it is
KEYWORD_ONLY = Parameter.KEYWORD_ONLY

DataRoot = Annotated[
    Path | None,
    typer.Option(
        "--data-root",
        "-d",
        envvar="RLA_DATA_ROOT",
        help="The database: the folder that holds log/.",
        show_default=False,
    ),
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table", "-t", help="Only this task table.", show_default=False, autocompletion=complete_table
    ),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        "-w",
        help="Only runs that match, e.g. \"lr == 0.001 and state == 'finished' and took > 60\".",
        show_default=False,
    ),
]
Since = Annotated[
    str | None,
    typer.Option("--since", help="Only runs started since then: 2026/11/21, 36h, 7d.", show_default=False),
]
Archived = Annotated[bool, typer.Option("--archived", help="Archived runs (those under arc/) instead.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        "-c",
        help="Columns, separated by commas.",
        show_default=False,
        autocompletion=complete_columns,
    ),
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
        show_default=False,
        autocompletion=complete_run,
    ),
]
_WithTag = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", help="Only runs with this tag (repeatable).", show_default=False, autocompletion=complete_tag
    ),
]
_WithState = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        help="Only runs in this state, e.g. failed,killed.",
        show_default=False,
        autocompletion=complete_state,
    ),
]
OtherRun = Annotated[
    str, typer.Argument(metavar="OTHER_RUN", help="The run to compare with.", autocompletion=complete_run)
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        help="This column of progress.csv (repeatable).",
        show_default=False,
        autocompletion=complete_metric,
    ),
]


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

    if new and data_root is not None and not data_root.exists() and data_root.absolute().parent.is_dir():
        data_root.mkdir(exist_ok=True)
        say_aside(f"{data_root} is a new database")
    database = Database(data_root if data_root is not None else find_data_root(Path.cwd()))
    if not new:
        _check_holds_database(database.data_root)
    if archived:
        from rla_client.contract.layout import ARCHIVED_TABLE

        if not (database.data_root / ARCHIVED_TABLE).is_dir():
            message = f"nothing is archived yet in {database.data_root}; `rla archive RUN` copies runs there"
            raise NoRunsYetError(message)
        database = database.archived
    if sys.stderr.isatty():
        database.progress = _progress
    return database


def _check_holds_database(folder: Path) -> None:
    """Tell a database without runs from a folder that is none.

    Raises:
        DatabaseError: it is none; the message names the one that was probably meant.
    """
    from rla_client.contract.layout import ARCHIVE_TESTER, ARCHIVED_TABLE, HYPARAMETER, LOG

    if any((folder / name).is_dir() for name in (LOG, ARCHIVE_TESTER, HYPARAMETER, ARCHIVED_TABLE)):
        return
    near = [parent for parent in folder.parents if is_data_root(parent)][:1]
    try:
        near = near or roots_below(folder, SEARCH_DEPTH)
    except OSError:  # a folder that may not be listed: the error below says enough
        near = []
    hint = f"--data-root {near[0]}" if len(near) == 1 else "give the folder that holds log/"
    message = f"{folder} holds no database\nhint: {hint}"
    raise DatabaseError(message)


def _progress(done: int, total: int) -> None:
    if total >= MANY:
        end = "\n" if done + 500 >= total else ""
        print(f"\rreading {done} of {total} runs…", end=end, file=sys.stderr, flush=True)  # noqa: T201


@dataclass(frozen=True, slots=True)
class Selection:
    """The runs that a command was asked for.

    Attributes:
        named: as RUN arguments.
        fitting: with `--run`: each stands for every run that it fits.
        table: only of this task table.
        where: only those that pass, with the filters of `--tag` and `--state` in it.
        since: only those begun since.
        tags: that all of them have.
    """

    named: tuple[str, ...] = ()
    fitting: tuple[str, ...] = ()
    table: str | None = None
    where: str | None = None
    since: str | None = None
    tags: tuple[str, ...] = ()

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

    def _one(self, database: Database, reference: str) -> Record:
        from rla_client.contract.errors import AmbiguousRunError

        try:
            return database.find(reference, self.table).record
        except AmbiguousRunError as error:
            message = f"{error}\nhint: for all of them: -r {shlex.quote(reference)}"
            raise AmbiguousRunError(message) from error

    def _check_tags(self, database: Database) -> None:
        from rla_client.contract.user_messages import hint

        known = {tag for record in database.records(self.table, light=True) for tag in record.tags}
        for tag in self.tags:
            if tag not in known:
                advice = hint(tag, sorted(known)) or "rla tag RUN TAG adds one"
                message = f"no run has the tag {tag!r}\nhint: {advice}"
                raise UnknownNameError(message)


def _selection(values: Mapping[str, Any]) -> Selection:
    """What the options of `takes_runs` say together.

    Raises:
        ArgumentError: a bad filter, or a state that runs do not have.
    """
    from rla_client.contract.user_messages import unknown
    from rla_client.database.records import STATES

    where, tags = values["where"], tuple(values["with_tag"] or ())
    filters = []
    if where is not None:
        from rla_client.database.where import Where as Filter

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

        parameters: list[Parameter] = []
        for name, own in signature(command, eval_str=True).parameters.items():
            if name == "chosen":
                new = [
                    Parameter(key, KEYWORD_ONLY, default=None, annotation=kind)
                    for key, kind in options.items()
                ]
                parameters += new
            else:
                parameters.append(own.replace(kind=KEYWORD_ONLY))
        selecting.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        selecting.__annotations__ = {one.name: one.annotation for one in parameters}
        return selecting

    return wrap


def say(text: str) -> None:
    """Print to stdout."""
    print(text)  # noqa: T201


def say_aside(text: str) -> None:
    """Print to stderr: what is not the answer itself."""
    from rla_client.database.text import lines_text

    print(lines_text(text), file=sys.stderr)  # noqa: T201


def teller(*, as_json: bool) -> Callable[[str], None]:
    """Where a command says what it is about to do: beside the answer where that is JSON."""
    return say_aside if as_json else say


def print_done(facts: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Say what a command did, in the form that was asked for."""
    from rla_client.database.text import json_text

    say(json_text(facts) if as_json else text)


def named_runs(records: Sequence[Record]) -> list[dict[str, object]]:
    """Runs as JSON names them."""
    return [{"run": record.index, "table": record.table} for record in records]


def say_waiting() -> None:
    """Why nothing happens."""
    say_aside("waiting for another rla command that changes this database…")


def print_rows(
    names: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool, as_csv: bool
) -> None:
    """Print a table in the form that was asked for."""
    from rla_client.database.text import csv_text, json_text, table_text

    if as_json:
        say(json_text([dict(zip(names, row, strict=True)) for row in rows]))
    elif as_csv:
        say(csv_text(names, rows))
    else:
        say(table_text(names, rows))


def agree(question: str, yes: bool) -> bool:
    """Ask y/n; without a terminal and without --yes the answer is no, and said so."""
    if yes:
        return True
    if not sys.stdin.isatty():
        say_aside("Not a terminal: pass --yes to confirm. Nothing was changed.")
        return False
    return typer.confirm(question)
