"""Selection of runs by a command's arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any

from rla_client.cli.options import (
    Fitting,
    Newest,
    RunArguments,
    Since,
    TableOption,
    Where,
    WithCommit,
    WithState,
    WithTag,
)
from rla_client.contract.errors import AmbiguousRunError, ArgumentError, UnknownNameError
from rla_client.contract.text.spelling import hint, unknown

if TYPE_CHECKING:
    from rla_client.database.database import Database
    from rla_client.database.records.record import Record


KEYWORD_ONLY = Parameter.KEYWORD_ONLY
MOST_COMMITS = 5  # listed in an error
_COMMIT = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True, slots=True)
class Selection:
    """Choice of runs by the arguments of a command."""

    named: tuple[str, ...] = ()  # RUN arguments
    fitting: tuple[str, ...] = ()  # `--run` options, each of which means all matching runs
    table: str | None = None  # only runs of this task table
    where: str | None = None  # filter, including those of `--tag` and `--state`
    since: str | None = None  # only runs that began since then
    tags: tuple[str, ...] = ()  # only runs with all these tags
    commit: str | None = None  # only runs of this git commit, by the first digits of its hash
    limit: int | None = None  # only the newest so many of the others

    @property
    def given(self) -> bool:
        """Whether any argument chooses runs."""
        return bool(self.named or self.table or self.several)

    @property
    def several(self) -> bool:
        """Whether options, which may match several runs, choose runs."""
        return any((self.fitting, self.where, self.since, self.commit, self.limit))

    def records(self, database: Database, *, one_each: bool = False, light: bool = False) -> list[Record]:
        """The chosen runs, oldest first; all runs without any argument.

        Args:
            database: database of the runs.
            one_each: a RUN argument must match one run, for commands that change runs; else it is like
                `--run`.
            light: leave out hyper-parameters and metrics that no filter needs.

        Raises:
            DatabaseError: a reference matches no run, or several where one is required.
            ArgumentError: the filter cannot be parsed, or no run has a tag.
        """
        found = self._matching(database, one_each=one_each, light=light and self.commit is None)
        if self.commit is not None:
            found = self._of_commit(found, self.commit)
        return found if self.limit is None else found[-self.limit :]

    def _matching(self, database: Database, *, one_each: bool, light: bool) -> list[Record]:
        """The chosen runs before `commit` and `limit` are applied."""
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
        """As `records`, but raises ArgumentError if no run matches."""
        found = self.records(database, one_each=one_each, light=light)
        if not found:
            raise ArgumentError("no run matches")
        return found

    def _one(self, database: Database, reference: str) -> Record:
        try:
            return database.find(reference, self.table).record
        except AmbiguousRunError as error:
            raise AmbiguousRunError(f"{error}\nhint: for all of them: -r {shlex.quote(reference)}") from error

    @staticmethod
    def _of_commit(records: list[Record], commit: str) -> list[Record]:
        known = {str(record.told["commit"]) for record in records if "commit" in record.told}
        fitting = {one for one in known if one.lower().startswith(commit)}
        if not fitting:
            raise UnknownNameError(
                f"none of these runs was started from commit {commit}\nhint: rla ls --columns run,commit"
            )
        if len(fitting) > 1:
            shown = ", ".join(sorted(fitting)[:MOST_COMMITS])
            raise ArgumentError(f"{len(fitting)} commits begin with {commit}: {shown}\nhint: more digits")
        return [record for record in records if record.told.get("commit") in fitting]

    def _check_tags(self, database: Database) -> None:
        known = {tag for record in database.records(self.table, light=True) for tag in record.tags}
        for tag in self.tags:
            if tag not in known:
                advice = hint(tag, sorted(known)) or "rla tag RUN TAG adds one"
                raise UnknownNameError(f"no run has the tag {tag!r}\nhint: {advice}")


def _selection(values: Mapping[str, Any]) -> Selection:
    """Selection by the options of `takes_runs`; raises ArgumentError for a wrong filter, commit or state."""
    from rla_client.database.records.record import STATES

    where, tags = values["where"], tuple(values["with_tag"] or ())
    filters = []
    if where is not None:
        from rla_client.database.filter.filter_language import Where as Filter

        Filter(where)  # checked alone, so that errors show it as it was written
        filters.append(f"({where})")
    filters += [f"{tag!r} in tags".replace("`", "\\x60") for tag in tags]
    commit = values["commit"]
    if commit is not None and not _COMMIT.fullmatch(commit.lower()):
        raise ArgumentError(f"{commit!r} is no git commit: 4 to 64 digits of its hash, such as 3f2a91c")
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
        commit.lower() if commit is not None else None,
        values.get("limit"),
    )


def takes_runs(*, argument: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that adds the options that select runs; the command gets a Selection as `chosen`.

    If the command has a parameter of the same name (`ls` has its own --limit), that option is not added.

    Args:
        argument: also add RUN arguments.
    """
    options: dict[str, Any] = {
        **({"runs": RunArguments} if argument else {}),
        "run": Fitting,
        "with_tag": WithTag,
        "state": WithState,
        "where": Where,
        "since": Since,
        "commit": WithCommit,
        "table": TableOption,
        "limit": Newest,
    }

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own_names = signature(command).parameters.keys()
        added_options = {name: kind for name, kind in options.items() if name not in own_names}

        @wraps(command)
        def selecting(**values: object) -> None:
            chosen = _selection({name: values[name] for name in added_options})
            command(chosen=chosen, **{name: values[name] for name in values if name not in added_options})

        added = [
            Parameter(key, KEYWORD_ONLY, default=None, annotation=kind) for key, kind in added_options.items()
        ]
        parameters: list[Parameter] = []
        for name, own in signature(command, eval_str=True).parameters.items():
            parameters += added if name == "chosen" else [own.replace(kind=KEYWORD_ONLY)]
        selecting.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        selecting.__annotations__ = {one.name: one.annotation for one in parameters}
        return selecting

    return wrap
