"""Combined table of a run's streams.

The main process of a run writes `progress.csv`, each further writer (a worker, a rank, a process that
joined) `progress.<role>.csv`. A metric of such a writer is called `<metric>@<role>`, so that values of
several writers for one step stay apart. A column of progress.csv with such a name takes precedence.
Further tables are read only for names with a role, so that runs with one stream cost nothing more.
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
MAX_STREAMS = 1000  # read from one run
SHARED = (TIME_STEP, TIMESTAMP)  # columns of time, which belong to the rows of every table
_ROLE = r"[A-Za-z][A-Za-z0-9_-]{0,63}"
_NAME = re.compile(rf"(.+)@({_ROLE})", re.DOTALL)
_TABLE = re.compile(rf"progress\.(?!old-[0-9]+\.)({_ROLE})\.csv")
_DIGITS = re.compile(r"([0-9]+)")


def split_role(name: str) -> tuple[str, str]:
    """Metric and role of a name; the role is empty for the main process."""
    found = _NAME.fullmatch(name) if "@" in name else None
    return (found[1], found[2]) if found is not None else (name, "")


def with_role(metric: str, role: str) -> str:
    """Name of a role's metric; the columns of time keep their names."""
    return metric if not role or metric in SHARED else f"{metric}@{role}"


def table_of(path: str, role: str) -> str:
    """Path of a role's table, from that of the main process."""
    return f"{path.removesuffix('.csv')}.{role}.csv" if role else path


def roles_in(names: Iterable[str]) -> list[str]:
    """Roles with a table among the file names of a log folder, in natural order."""
    found = [match[1] for match in map(_TABLE.fullmatch, names) if match is not None]
    found.sort(key=lambda role: [int(part) if part.isdecimal() else part for part in _DIGITS.split(role)])
    return found[:MAX_STREAMS]


def roles_of(folder: str | os.PathLike[str]) -> list[str]:
    """Roles with a table in a log folder; none if it cannot be listed, which reading its table reports."""
    try:
        return roles_in(os.listdir(folder))
    except OSError:
        return []


def role_variants(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are this metric of some role."""
    return [one for one in known if "@" in one and split_role(one) == (name, split_role(one)[1])]


def of_all_roles(name: str, known: Collection[str]) -> list[str]:
    """The name itself; or if only roles have the metric, and several do, the names of theirs."""
    variants = [] if name in known else role_variants(name, known)
    return variants if len(variants) > 1 else [name]


def run_columns(path: str, names: Sequence[str], read: Callable[[str, Sequence[str]], Columns]) -> Columns:
    """Columns of a run, shape (rows,) each: rows of the main process, followed by those of each role.

    If all metrics are of one writer, only its rows are given.

    Args:
        path: path of progress.csv.
        names: columns.
        read: reads columns of one table, by path and names; missing columns are left out.

    Raises:
        Errors of `read`; FileNotFoundError only if there is none of the tables.
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
    """Rows of several tables, one after another; NaN for a column that a table lacks."""
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
