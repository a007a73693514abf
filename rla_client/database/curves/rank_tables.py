"""Combined table of a run's ranks.

Rank 0 writes `progress.csv`, rank 5 `progress.rank5.csv`. If another machine takes the rank over, or that
name is in use, `progress.rank5-<machine>.csv` or `progress.rank5-2.csv` continues it. Roles that are no
ranks, and runs without ranks, are unaffected.

A mean is over the ranks that recorded the metric at the time-step. Their number is in the column
`<metric>@*`, the number of ranks of the run in `@*`: names that no table has. A NaN recorded by one rank
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
OF_RANKS: Final = "@*"  # number of ranks of a run; after a metric's name: number of ranks in its mean
MAX_NAMED = 8  # metrics or ranks that a text lists
_RANK = re.compile(r"rank([0-9]{1,9})(?:-[A-Za-z0-9-]*-[0-9a-f]{6})?(?:-[0-9]+)?")


def parse_ranks(asked: str | int | None) -> Ranks | None:
    """Value of `--ranks`; None if it was not given.

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
    """Whether one table replaces those of all ranks: their mean, or that of a rank other than 0."""
    return ranks not in {None, "all", 0}


def rank_of(role: str) -> int | None:
    """The rank that writes as this role; None for other roles."""
    found = _RANK.fullmatch(role)
    return None if found is None else int(found[1])


def rank_roles(folder: str | os.PathLike[str]) -> dict[int, list[str]]:
    """Rank → its roles in a log folder; rank 0 has the empty role."""
    found: dict[int, list[str]] = {0: [""]}
    for role in roles_of(folder):
        rank = rank_of(role)
        if rank is not None:
            found.setdefault(rank, []).append(role)
    return found


def check_rank(
    data_root: str | os.PathLike[str], pairs: Iterable[tuple[str, str]], ranks: Ranks | None
) -> None:
    """Check that at least one run has the chosen rank.

    Args:
        data_root: the database.
        pairs: table and index of each run.
        ranks: the chosen ranks.

    Raises:
        UnknownNameError: no run has the rank.
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
    """Names of a run's columns after its ranks' tables are combined."""
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
    """A metric of rank 0, followed by the same metric of the other ranks among the known names."""
    variants = {one: split_role(one) for one in known if "@" in one}
    return [name, *(one for one, (metric, role) in variants.items() if metric == name and rank_of(role))]


def rank_columns(path: str, names: Sequence[str], read: Read, ranks: Ranks | None) -> Columns:
    """Columns of a run, with those that name no role taken from the chosen ranks.

    Args:
        path: path of progress.csv.
        names: columns; a name with a role means that role.
        read: reads columns of one table, by path and names; missing columns are left out.
        ranks: see `parse_ranks`.

    Raises:
        Errors of `read`; FileNotFoundError only if there is none of the tables.
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
    """Rows of one rank; None without a table. After a restart, later rows replace those of the same steps."""
    import numpy as np

    tables = []
    for role in roles:
        try:
            tables.append(read(table_of(path, role), list(dict.fromkeys([*names, TIME_STEP, TIMESTAMP]))))
        except FileNotFoundError:
            continue
    if len(tables) < 2:  # noqa: PLR2004 - nothing to combine
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
    """The smallest time-step that other tables have after each moment; infinite without one."""
    import numpy as np

    order = np.argsort(later_moments, kind="stable")
    least = np.append(np.fmin.accumulate(later_steps[order][::-1])[::-1], np.inf)
    return least[np.searchsorted(later_moments[order], moments, "right")]


def _mean(tables: Iterable[Columns], names: Sequence[str]) -> Columns:
    """Mean table with one row per time-step, see the module docstring; a single rank's table as it is.

    Tables are read one after another and only sums are kept, because a run may have thousands of ranks.
    """
    metrics = list(dict.fromkeys(name.removesuffix(OF_RANKS) for name in names if name != OF_RANKS))
    by_step, by_row, first, number = _Sums(metrics), _Sums(metrics), None, 0
    stepped = False  # without time-steps, rows are averaged by their number
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
    """The table of the only rank, with the number of ranks in each value."""
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
        metrics: names of the metrics.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        import numpy as np

        self._metrics = metrics
        self._steps: Array = np.zeros(0)
        self._sums: dict[str, tuple[Array, Array]] = {}  # metric → totals, numbers of ranks

    def add(self, key: Array, table: Columns) -> None:
        """Add a rank's table; `key` is each row's time-step. Of several rows of a step the last counts."""
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
        """Columns of the mean; `ranks` is the number of added tables."""
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
    """Mask of recorded values, including recorded NaN."""
    import numpy as np

    return ~np.isnan(column) | recorded_nan(column)


def _divided(total: Array, count: Array) -> Array:
    import numpy as np

    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Array = total / count
    mean[np.isnan(mean) & (count > 0)] = RECORDED_NAN
    return mean


def _rows(table: Columns, value: float = 1.0) -> Array:
    """A column of one value for each row of a table."""
    import numpy as np

    return np.full(max((len(column) for column in table.values()), default=0), value)


@dataclass(frozen=True, slots=True)
class RankShare:
    """Number of ranks in the points of a mean.

    Attributes:
        points: number of points.
        lacking: number of points with fewer ranks than the run has.
        fewest, most: smallest and largest number of ranks in a point.
        of: smallest and largest number of ranks of a run.
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
    """Number of ranks in the points of a mean; None without points.

    Args:
        count: ranks in each row, shape (rows,); 0 if the row has no point.
        of: ranks of the run, shape (rows,).
    """
    here = count > 0
    count, of = count[here], of[here]
    if not len(count):
        return None
    ends = (int(of.min()), int(of.max()))
    return RankShare(len(count), int((count < of).sum()), int(count.min()), int(count.max()), ends)


def rank_notes(ranks: Ranks | None, shares: Mapping[str, RankShare]) -> list[str]:
    """Notes for readers of curves: which ranks they are of, and where ranks are missing.

    Args:
        ranks: see `parse_ranks`.
        shares: metric → share of ranks in its mean.
    """
    if isinstance(ranks, int):
        return [f"rank {ranks} alone"]
    if ranks != "mean" or not shares:
        return []
    low, high = min(one.of[0] for one in shares.values()), max(one.of[1] for one in shares.values())
    if high == 1:
        return ["no run here has further ranks"]
    notes = [f"mean of {high if low == high else f'{low} to {high}'} ranks at each time-step"]
    lines = [f"{name}: {_lack(one)}" for name, one in shares.items() if one.lacking]
    more = len(lines) - MAX_NAMED
    return [*notes, *lines[:MAX_NAMED], *([f"{more} more metrics lack ranks"] if more > 0 else [])]


def _lack(share: RankShare) -> str:
    ranks = f"{share.fewest}" if share.fewest == share.most else f"{share.fewest} to {share.most}"
    if share.lacking == share.points:
        return f"{ranks} of {share.of[1]} ranks"
    return f"{share.lacking} of {share.points} points lack ranks (as few as {share.fewest} of {share.of[1]})"
