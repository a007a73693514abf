"""Combined table of a run's streams.

The main process of a run writes `progress.csv`, each further writer (a worker, a rank, a process that joined)
`progress.<role>.csv`. A metric of such a writer is called `<metric>@<role>`, so that what several writers
record for one step stays apart. A column of progress.csv that is called like that comes first.

Only names with a role lead to further tables: what is asked of a run with one stream costs what it did.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from rla_client.contract.layout import TIME_STEP, TIMESTAMP

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Columns = dict[str, NDArray[np.float64]]
MAX_STREAMS = 1000  # of one run that are looked at
SHARED = (TIME_STEP, TIMESTAMP)  # columns that say when: of each row of each table
_ROLE = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_NAME = re.compile(rf"(.+)@({_ROLE})", re.DOTALL)
_TABLE = re.compile(rf"progress\.(?!old-[0-9]+\.)({_ROLE})\.csv")
_DIGITS = re.compile(r"([0-9]+)")


def split_role(name: str) -> tuple[str, str]:
    """Metric and role of a name; an empty role without one."""
    found = _NAME.fullmatch(name) if "@" in name else None
    return (found[1], found[2]) if found is not None else (name, "")


def with_role(metric: str, role: str) -> str:
    """The name of a metric of a role; of a column that says when, that column's."""
    return metric if not role or metric in SHARED else f"{metric}@{role}"


def table_of(path: str, role: str) -> str:
    """The table of a role beside the main process's."""
    return f"{path.removesuffix('.csv')}.{role}.csv" if role else path


def roles_in(names: Iterable[str]) -> list[str]:
    """The roles that have a table among the names of a log folder's files; numbers in them in their order."""
    found = [match[1] for match in map(_TABLE.fullmatch, names) if match is not None]
    found.sort(key=lambda role: [int(part) if part.isdecimal() else part for part in _DIGITS.split(role)])
    return found[:MAX_STREAMS]


def roles_of(folder: str | os.PathLike[str]) -> list[str]:
    """The roles that have a table in a log folder; none where it cannot be listed, as its own table tells."""
    try:
        return roles_in(os.listdir(folder))
    except OSError:
        return []


def role_variants(name: str, known: Iterable[str]) -> list[str]:
    """The names among `known` that are this metric of some role."""
    return [one for one in known if "@" in one and split_role(one) == (name, split_role(one)[1])]


def of_all_roles(name: str, known: Collection[str]) -> list[str]:
    """The name, or where only roles have such a metric, and several of them, the name of each."""
    variants = [] if name in known else role_variants(name, known)
    return variants if len(variants) > 1 else [name]


def run_columns(path: str, names: Sequence[str], read: Callable[[str, Sequence[str]], Columns]) -> Columns:
    """Columns of a run, shape (rows,) each: the rows of the main process, behind them those of each role.

    Where all the metrics are of one writer, these are the rows of that one alone.

    Args:
        path: of progress.csv.
        names: columns.
        read: columns of one table, by path and names; names that it has not are left out.

    Raises:
        What `read` raises; FileNotFoundError only where none of the tables is there.
    """
    asked = {name: split_role(name) for name in names if "@" in name}
    if not any(role for _, role in asked.values()):
        return read(path, names)
    try:
        parts = [read(path, names)]
    except FileNotFoundError:
        parts = []
    missing = not parts
    own = {name for part in parts for name in part}
    for role in dict.fromkeys(role for name, (_, role) in asked.items() if role and name not in own):
        wanted = {with_role(metric, role): metric for metric, of in asked.values() if of == role}
        shared = [name for name in names if name in SHARED]
        try:
            found = read(table_of(path, role), [*wanted.values(), *shared])
        except FileNotFoundError:
            continue
        missing = False
        full = {metric: name for name, metric in wanted.items()} | {name: name for name in shared}
        parts.append({full[name]: column for name, column in found.items()})
    if missing:
        raise FileNotFoundError(path)
    return rows_together([part for part in parts if part.keys() - {*SHARED}] or parts[:1], names)


def rows_together(parts: Sequence[Columns], names: Sequence[str]) -> Columns:
    """The rows of several tables, one behind the other; NaN where one has not a column that another has."""
    if len(parts) == 1:
        return parts[0]
    import numpy as np

    lengths = [max((len(column) for column in part.values()), default=0) for part in parts]
    return {
        name: np.concatenate(
            [
                part[name] if name in part else np.full(length, np.nan)
                for part, length in zip(parts, lengths, strict=True)
            ]
        )
        for name in names
        if any(name in part for part in parts)
    }
