"""What the shell's Tab key offers: runs, `seed=1`, tables, names of parameters and metrics.

A Tab is answered at once or not at all: whatever goes wrong, and a database that takes longer than
`TIME_S` of this process (the first look at ten thousand runs), offers nothing and prints nothing. What
was read until then is kept, so the next Tab gets further.
"""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterable, MutableMapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rla_client.contract.errors import RlaError

if TYPE_CHECKING:
    from rla_client.database.records import Record
    from rla_client.database.runs import Database

MAX_OFFERED = 100  # newest runs; more is no help on a screen
MAX_ASKED = 1000  # newest runs whose parameters are offered
TIME_S = 1.0  # of processor time, so that a busy machine does not make a small database silent
TIME_PLACE = len("2026/11/21/")
ASKED = "_RLA_COMPLETE"  # set by the shell's function, as typer names it
_meant: list[str] = []  # names were looked for: the shell shall not offer files


def answer(ask: Callable[[], object]) -> str:
    """What to print for the shell: the answer of typer, adapted for bash and zsh.

    Bash takes `seed=1` and `--group=lr` for three words and replaces the last one alone. Zsh is told
    to offer files where typer finds nothing, though a name was wanted.

    Args:
        ask: runs the command line, which prints typer's answer.
    """
    behind = _join_words(os.environ)
    out = io.StringIO()
    signal.signal(signal.SIGPROF, _too_long)
    with redirect_stdout(out), redirect_stderr(io.StringIO()), suppress(Exception, SystemExit):
        signal.setitimer(signal.ITIMER_PROF, TIME_S)
        ask()
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    lines = out.getvalue().splitlines()
    if _meant and lines == ["_files"]:
        return ""
    return "\n".join(line.removeprefix(behind) for line in lines)


def _too_long(*_: object) -> None:
    raise TimeoutError


def _join_words(environment: MutableMapping[str, str]) -> str:
    """Put words together that bash broke at `=` and `:`; returns what stands before the last break."""
    if environment.get(ASKED) != "complete_bash":
        return ""
    words = environment.get("COMP_WORDS", "").split("\n")
    place = environment.get("COMP_CWORD", "")
    if not place.isdecimal() or len(words) < 2:  # noqa: PLR2004 - one line: nothing was broken
        return ""
    joined: list[str] = []
    for word in words[: int(place) + 1]:
        glued = joined and (word in {"=", ":"} or joined[-1].endswith(("=", ":")))
        if glued and len(joined) > 1:
            joined[-1] += word
        else:
            joined.append(word)
    option, sign, value = joined[-1].partition("=")
    if sign and option.startswith("--"):
        joined[-1:] = [option, value]
    environment["COMP_WORDS"] = "\n".join(word or "''" for word in joined)
    environment["COMP_CWORD"] = str(len(joined) - 1)
    last = joined[-1]
    return last[: max(last.rfind("="), last.rfind(":")) + 1]


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
    from rla_client.database.records import STATES

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
    from rla_client.database.records import ALIASES, FIELDS

    metrics = (name for record in _newest(ctx, limit=1) for name in record.metrics)
    return [*_parameters(ctx), *metrics, *FIELDS, *ALIASES]


def _behind_comma(incomplete: str, names: Iterable[str]) -> list[str]:
    before, mark, _ = incomplete.rpartition(",")
    return _matching((f"{before}{mark}{name}" for name in names), incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    """Each name that continues from what was typed, once."""
    _meant.append(incomplete)
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
    from rla_client.database.tree import find_data_root

    given = ctx.params.get("data_root")
    try:
        return Database(given if given is not None else find_data_root(Path.cwd()))
    except (RlaError, OSError):
        return None
