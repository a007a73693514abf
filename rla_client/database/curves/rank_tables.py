"""Combined table of a run's ranks.

Rank 0 writes `progress.csv`, rank 5 `progress.rank5.csv`. Where another machine took the rank over, or that
name was in use, `progress.rank5-<machine>.csv` or `progress.rank5-2.csv` continues it. Roles that are no
ranks, and runs without ranks, stay as they are.

In a mean each metric is that of the ranks that recorded it at the time-step. How many these are stands in the
column `<metric>@*`, how many ranks the run has in `@*`: names that no table has. What a rank recorded as NaN
makes the mean NaN.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from rla_client.contract.errors import ArgumentError, UnknownNameError
from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.database.curves.progress_csv import RECORDED_NAN, recorded_nan
from rla_client.database.curves.stream_tables import (
    SHARED,
    roles_of,
    rows_together,
    run_columns,
    split_role,
    table_of,
)
from rla_client.database.tree.chains import chain_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Array = NDArray[np.float64]
    Columns = dict[str, Array]
    Read = Callable[[str, Sequence[str]], Columns]
Ranks: TypeAlias = int | Literal["all", "mean"]
OF_RANKS: Final = "@*"  # how many ranks a run has; behind a metric's name: how many are in its mean
MAX_NAMED = 8  # metrics or ranks that a text lists
_RANK = re.compile(r"rank([0-9]{1,9})(?:-[A-Za-z0-9-]*-[0-9a-f]{6})?(?:-[0-9]+)?")


def parse_ranks(asked: str | int | None) -> Ranks | None:
    """What `--ranks` means; None where nothing was asked for.

    Raises:
        ArgumentError: it is neither all, mean nor the number of a rank.
    """
    if asked is None or asked in {"all", "mean"}:
        return asked  # type: ignore[return-value]
    number = str(asked)
    if isinstance(asked, bool) or not (number.isascii() and number.isdecimal()):
        raise ArgumentError(f"ranks are all, mean, or the number of one (0, 1, …), not {asked!r:.50}")
    return int(number)


def merges_ranks(ranks: Ranks | None) -> bool:
    """Whether the ranks' tables become one: a mean, or one of them in the place of rank 0's."""
    return ranks not in {None, "all", 0}


def rank_of(role: str) -> int | None:
    """The rank that writes as this role; None for other roles."""
    found = _RANK.fullmatch(role)
    return None if found is None else int(found[1])


def rank_roles(folder: str | os.PathLike[str]) -> dict[int, list[str]]:
    """Rank → the roles that it has written as in a log folder; rank 0's is the empty one."""
    found: dict[int, list[str]] = {0: [""]}
    for role in roles_of(folder):
        rank = rank_of(role)
        if rank is not None:
            found.setdefault(rank, []).append(role)
    return found


def check_rank(
    data_root: str | os.PathLike[str], pairs: Iterable[tuple[str, str]], ranks: Ranks | None
) -> None:
    """See that one of some runs has the rank that was asked for.

    Args:
        data_root: the database.
        pairs: table and index of each run.
        ranks: what was asked for.

    Raises:
        UnknownNameError: none has it.
    """
    if not isinstance(ranks, int) or ranks == 0:
        return
    known: set[int] = set()
    for table, index in pairs:
        for link in chain_of(data_root, table, index):
            known |= rank_roles(f"{data_root}/{LOG}/{table}/{link.index}").keys()
            if ranks in known:
                return
    there = sorted(known)
    texts = [str(rank) for rank in there[:MAX_NAMED]] + (["…"] if len(there) > MAX_NAMED else [])
    raise UnknownNameError(
        f"none of these runs has a rank {ranks}\n"
        f"hint: {'they have ' + ', '.join(texts) if len(there) > 1 else 'no other rank than 0 wrote a table'}"
    )


def names_of_ranks(names: Iterable[str], ranks: Ranks | None) -> list[str]:
    """Columns of a run as they are called where its ranks' tables are read as one."""
    if ranks is None or ranks == "all":
        return list(names)
    found: dict[str, None] = {}
    for name in names:
        metric, role = split_role(name)
        rank = 0 if not role else rank_of(role)
        if rank is None:
            found[name] = None
        elif ranks in {"mean", rank} or name in SHARED:
            found[metric] = None
    return list(found)


def of_each_rank(name: str, known: Iterable[str]) -> list[str]:
    """A metric of rank 0, and those of the other ranks among the names that are known."""
    variants = {one: split_role(one) for one in known if "@" in one}
    return [name, *(one for one, (metric, role) in variants.items() if metric == name and rank_of(role))]


def rank_columns(path: str, names: Sequence[str], read: Read, ranks: Ranks | None) -> Columns:
    """Columns of a run as `curve_columns` gives them, but those without a role of the ranks asked for.

    Args:
        path: of progress.csv.
        names: columns; those with a role are this role's.
        read: columns of one table, by path and names; names that it has not are left out.
        ranks: see `parse_ranks`.

    Raises:
        What `read` raises; FileNotFoundError only where none of the tables is there.
    """
    if not merges_ranks(ranks):
        return run_columns(path, names, read)
    of_roles = [name for name in names if split_role(name)[1]]
    plain = [name for name in names if name not in of_roles and not name.endswith(OF_RANKS)]
    by_rank = rank_roles(os.path.dirname(path))
    wanted = by_rank if ranks == "mean" else {rank: by_rank[rank] for rank in by_rank if rank == ranks}
    tables = (_of_one_rank(path, roles, plain, read) for roles in wanted.values())
    there = (table for table in tables if table is not None)
    parts = [_mean(there, names)] if ranks == "mean" else list(there)
    found = [part for part in parts if part]
    if of_roles:
        try:
            found.append(run_columns(path, [*of_roles, *(name for name in plain if name in SHARED)], read))
        except FileNotFoundError:
            if not found:
                raise
    if not found and not any(
        os.path.exists(table_of(path, role)) for roles in wanted.values() for role in roles
    ):
        raise FileNotFoundError(path)
    return rows_together(found, names)


def _of_one_rank(path: str, roles: Sequence[str], names: Sequence[str], read: Read) -> Columns | None:
    """The rows of one rank; None without a table. Where one of its tables began again, later rows count."""
    import numpy as np

    tables = []
    for role in roles:
        try:
            tables.append(read(table_of(path, role), list(dict.fromkeys([*names, TIME_STEP, TIMESTAMP]))))
        except FileNotFoundError:
            continue
    if len(tables) < 2:  # noqa: PLR2004 - nothing to put together
        return tables[0] if tables else None
    moments = [table.get(TIMESTAMP, _rows(table, 0.0)) for table in tables]
    steps = [table.get(TIME_STEP, _rows(table, np.nan)) for table in tables]
    kept, order = [], []
    for place, table in enumerate(tables):
        others = [at for at in range(len(tables)) if at != place]
        until = _begun_again(
            moments[place],
            np.concatenate([moments[at] for at in others]),
            np.concatenate([steps[at] for at in others]),
        )
        keep = ~(steps[place] >= until)
        kept.append({name: column[keep] for name, column in table.items()})
        order.append(moments[place][keep])
    rows = rows_together(kept, list(dict.fromkeys(name for table in kept for name in table)))
    by_time = np.argsort(np.concatenate(order), kind="stable")
    return {name: column[by_time] for name, column in rows.items()}


def _begun_again(moments: Array, later_moments: Array, later_steps: Array) -> Array:
    """The least time-step that other tables have after each moment; infinite without one."""
    import numpy as np

    order = np.argsort(later_moments, kind="stable")
    least = np.append(np.fmin.accumulate(later_steps[order][::-1])[::-1], np.inf)
    return least[np.searchsorted(later_moments[order], moments, "right")]


def _mean(tables: Iterable[Columns], names: Sequence[str]) -> Columns:
    """One row a time-step; see the module's text. Of one rank it is its table.

    One table is read after the other, and of those that were read the sums alone stay: a run may have
    thousands of ranks.
    """
    metrics = list(dict.fromkeys(name.removesuffix(OF_RANKS) for name in names if name != OF_RANKS))
    by_step, by_row, first, number = _Sums(metrics), _Sums(metrics), None, 0
    stepped = False  # else row by row
    for table in tables:
        number += 1
        first = table if first is None else first
        stepped = stepped or bool(TIME_STEP in table and table[TIME_STEP].any())
        by_step.add(table.get(TIME_STEP, _rows(table, float("nan"))), table)
        if not stepped:
            by_row.add(_rows(table).cumsum(), table)
    if first is None:
        return {}
    return (
        _alone(first, names)
        if number == 1
        else (by_step if stepped else by_row).means(names, number, stepped)
    )


def _alone(table: Columns, names: Sequence[str]) -> Columns:
    """The table of the only rank, with how many ranks are in each value of it."""
    found: Columns = {}
    for name in names:
        metric = name.removesuffix(OF_RANKS)
        if name == OF_RANKS:
            found[name] = _rows(table)
        elif metric in table:
            column = table[metric]
            found[name] = column if name == metric else _is_there(column).astype(float)
    return found


class _Sums:
    """Sums of metrics over ranks, by time-step or row.

    Args:
        metrics: those that are wanted.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        import numpy as np

        self._metrics = metrics
        self._steps: Array = np.zeros(0)
        self._sums: dict[str, tuple[Array, Array]] = {}  # metric → totals, numbers of ranks

    def add(self, key: Array, table: Columns) -> None:
        """Add a rank's table; `key`: time-step of each row. Of several rows of one the last one counts."""
        import numpy as np

        steps = np.union1d(self._steps, key[~np.isnan(key)])
        if len(steps) > len(self._steps):
            places = np.searchsorted(steps, self._steps)
            self._sums = {
                metric: (_spread(total, places, len(steps)), _spread(count, places, len(steps)))
                for metric, (total, count) in self._sums.items()
            }
            self._steps = steps
        for metric in self._metrics:
            if metric not in table:
                continue
            rows = np.flatnonzero(_is_there(table[metric]) & ~np.isnan(key))
            places = np.searchsorted(steps, key[rows])
            value, there = np.zeros(len(steps)), np.zeros(len(steps))
            value[places], there[places] = table[metric][rows], 1.0
            total, count = self._sums.get(metric, (0.0, 0.0))
            self._sums[metric] = total + value, count + there

    def means(self, names: Sequence[str], ranks: int, stepped: bool) -> Columns:
        """The columns of a mean; `ranks`: how many tables were added."""
        import numpy as np

        found: Columns = {}
        for name in names:
            metric = name.removesuffix(OF_RANKS)
            if name == OF_RANKS:
                found[name] = np.full(len(self._steps), float(ranks))
            elif name == TIME_STEP and stepped:
                found[name] = self._steps
            elif metric in self._sums:
                total, count = self._sums[metric]
                found[name] = count if name != metric else _divided(total, count)
        return found


def _spread(column: Array, places: NDArray[np.intp], length: int) -> Array:
    import numpy as np

    found = np.zeros(length)
    found[places] = column
    return found


def _is_there(column: Array) -> NDArray[np.bool_]:
    """Where a rank recorded anything, a NaN too."""
    import numpy as np

    return ~np.isnan(column) | recorded_nan(column)


def _divided(total: Array, count: Array) -> Array:
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Array = total / count
    mean[np.isnan(mean) & (count > 0)] = RECORDED_NAN
    return mean


def _rows(table: Columns, value: float = 1.0) -> Array:
    """As many of a value as a table has rows."""
    import numpy as np

    return np.full(max((len(column) for column in table.values()), default=0), value)


@dataclass(frozen=True, slots=True)
class RankShare:
    """How many ranks are in a mean.

    Attributes:
        points: of the mean.
        lacking: those that are of fewer ranks than the run has.
        fewest, most: ranks in a point.
        of: ranks of a run, the least and the largest number.
    """

    points: int
    lacking: int
    fewest: int
    most: int
    of: tuple[int, int]

    def __add__(self, other: RankShare) -> RankShare:
        return RankShare(
            self.points + other.points,
            self.lacking + other.lacking,
            min(self.fewest, other.fewest),
            max(self.most, other.most),
            (min(self.of[0], other.of[0]), max(self.of[1], other.of[1])),
        )


def rank_share(count: Array, of: Array) -> RankShare | None:
    """How many ranks are in the points of a mean; None without a point.

    Args:
        count: ranks in each row, shape (rows,); 0 where there is no point.
        of: ranks of the run, shape (rows,).
    """
    here = count > 0
    count, of = count[here], of[here]
    if not len(count):
        return None
    ends = (int(of.min()), int(of.max()))
    return RankShare(len(count), int((count < of).sum()), int(count.min()), int(count.max()), ends)


def rank_notes(ranks: Ranks | None, shares: Mapping[str, RankShare]) -> list[str]:
    """What a reader of curves of ranks has to know: which ranks they are, where some are missing.

    Args:
        ranks: see `parse_ranks`.
        shares: of a mean: metric → how many ranks are in it.
    """
    if isinstance(ranks, int):
        return [f"rank {ranks} alone"]
    if ranks != "mean" or not shares:
        return []
    low, high = min(one.of[0] for one in shares.values()), max(one.of[1] for one in shares.values())
    if high == 1:
        return ["no run here has further ranks"]
    told = [f"mean of {high if low == high else f'{low} to {high}'} ranks at each time-step"]
    lines = [f"{name}: {_lack(one)}" for name, one in shares.items() if one.lacking]
    more = len(lines) - MAX_NAMED
    return [*told, *lines[:MAX_NAMED], *([f"{more} more metrics lack ranks"] if more > 0 else [])]


def _lack(share: RankShare) -> str:
    ranks = f"{share.fewest}" if share.fewest == share.most else f"{share.fewest} to {share.most}"
    if share.lacking == share.points:
        return f"{ranks} of {share.of[1]} ranks"
    return f"{share.lacking} of {share.points} points lack ranks (as few as {share.fewest} of {share.of[1]})"
