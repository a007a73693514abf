"""DataFrame of curves (`Database.curves`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rla_client.contract.errors import DatabaseError, extra
from rla_client.contract.layout import LOG
from rla_client.contract.text.spelling import full_name
from rla_client.database.curves.chain_curves import chain_names
from rla_client.database.curves.progress_csv import FULL_NAMES, warn_broken
from rla_client.database.curves.rank_tables import (
    OF_RANKS,
    Ranks,
    RankShare,
    check_rank,
    names_of_ranks,
    of_each_rank,
    rank_share,
)
from rla_client.database.curves.stream_tables import (
    SHARED,
    of_all_roles,
    role_variants,
    split_role,
    with_role,
)
from rla_client.database.tree.chains import chain_of

if TYPE_CHECKING:
    from rla_client.database.curves.band_kinds import Band

Read = Callable[
    [Sequence[tuple[str, str]], Sequence[str], Ranks | None], list[dict[str, Any] | DatabaseError | OSError]
]
ROOT, X = "rla_curves_root", "rla_curves_x"  # attrs: data root of the curves, column of x
_SHOWER = "rla_client.web.notebook_panels"  # in a higher layer: imported when a frame is shown


class CurveFrame(pd.DataFrame):
    """Curves in long form; see `Database.curves`. Parts of a frame can be shown as well."""

    @property
    def _constructor(self) -> type[CurveFrame]:
        return CurveFrame

    def show(self, group: str | None = None, band: Band = "ci", smooth: float = 0.0) -> Any:  # noqa: ANN401
        """Panels of the page for these runs and metrics, in a notebook, without a server or a network.

        Args:
            group: names of hyper-parameters or fields, separated by commas: one curve with a band per group.
            band: kind of band as in `rla plot`: ci, iqm, stderr, std, median, range, none.
            smooth: number of points to smooth over.

        Returns:
            An object that a notebook shows as HTML; `.html` is the page as text.

        Raises:
            ArgumentError: there are no curves, or they cannot be grouped by these names.
            DatabaseError: the extra `web` is not installed.
        """
        with extra("web", "curves().show()"):
            shower = import_module(_SHOWER)
        runs = list(zip(self["table"].astype(str), self["index"].astype(str), strict=True))
        names = self.attrs.get("full_names", {})
        metrics = [names.get(metric, metric) for metric in self["metric"].astype(str).unique()]
        settings = {"x": str(self.attrs[X]), "group": group or "", "band": band, "smooth": f"{smooth:g}"}
        return shower.panels(Path(self.attrs[ROOT]), list(dict.fromkeys(runs)), metrics, settings)


def long_frame(  # noqa: PLR0913 - all but four by name, as `Database.curves` has them
    data_root: Path,
    read: Read,
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    *,
    x: str,
    bound: float | tuple[float, float] | None,
    ranks: Ranks | None = None,
) -> CurveFrame:
    """See `Database.curves`; `read` gives columns of runs, or the error of a broken table."""
    check_rank(data_root, pairs, ranks)
    if ranks == "all":
        metrics = _each_rank_apart(data_root, pairs, metrics)
    counts = [f"{name}{OF_RANKS}" for name in ("", *metrics)] if ranks == "mean" else []
    xs = [with_role(x, split_role(name)[1]) for name in metrics] if ranks == "all" and x not in SHARED else []
    tables, full = _tables(data_root, read, pairs, [x, *metrics], [*counts, *xs], ranks)
    metrics = [one for name in metrics for one in ([name] if name in full else role_variants(name, full))]
    pieces = [
        _piece(run, name, table, (_x_of(full[x], full[name], table), full[name]), bound)
        for run, table in zip(pairs, tables, strict=True)
        for name in metrics
        if full[x] in table and full[name] in table
    ]
    lengths = [len(piece.xs) for piece in pieces]
    alone = f"rank{ranks}" if isinstance(ranks, int) and ranks else ""

    def codes(places: Sequence[int]) -> NDArray[np.int64]:
        return np.repeat(np.array(places, dtype=np.int64), lengths)

    def category(names: Sequence[str], of_piece: Sequence[str]) -> pd.Categorical:
        known = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return pd.Categorical.from_codes(codes([known[name] for name in of_piece]), pd.Index(list(known)))

    def together(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        return np.concatenate(parts or [np.empty(0)])

    frame: CurveFrame = CurveFrame(
        {
            "table": category([table for table, _ in pairs], [piece.run[0] for piece in pieces]),
            "index": category([index for _, index in pairs], [piece.run[1] for piece in pieces]),
            "metric": category(metrics, [piece.metric for piece in pieces]),
            "role": category(
                [split_role(full[name])[1] or alone for name in metrics],
                [split_role(full[piece.metric])[1] or alone for piece in pieces],
            ),
            "x": together([piece.xs for piece in pieces]),
            "value": together([piece.ys for piece in pieces]),
        }
    )
    if ranks == "mean":
        frame["ranks"] = together([piece.ranks[0] for piece in pieces]).astype(int)
        frame["of_ranks"] = together([piece.ranks[1] for piece in pieces]).astype(int)
    frame.attrs |= {FULL_NAMES: full, ROOT: str(data_root), X: full[x]}
    return frame


def frame_shares(frame: pd.DataFrame) -> dict[str, RankShare]:
    """Metric → share of ranks, for a frame of means; empty for other frames."""
    if "ranks" not in frame.columns:
        return {}
    parts = frame[frame["role"] == ""].groupby("metric", observed=True, sort=False)
    found = {
        str(metric): rank_share(part["ranks"].to_numpy(), part["of_ranks"].to_numpy())
        for metric, part in parts
    }
    return {metric: share for metric, share in found.items() if share is not None}


class _Piece(NamedTuple):
    """One metric of one run; arrays of shape (points,)."""

    run: tuple[str, str]
    metric: str
    xs: Any
    ys: Any
    ranks: tuple[Any, Any]  # number of ranks in each point, and of the run


def _piece(
    run: tuple[str, str],
    metric: str,
    table: dict[str, Any],
    columns: tuple[str, str],
    bound: float | tuple[float, float] | None,
) -> _Piece:
    xs, ys = (table[name] for name in columns)
    keep = _finite(xs, ys, bound)
    ones = np.ones(len(ys))
    names = [] if split_role(columns[1])[1] else [f"{columns[1]}{OF_RANKS}", OF_RANKS]
    counts = [table.get(name, ones) for name in names] or [ones, ones]
    if not keep.all():
        xs, ys, *counts = (column[keep] for column in (xs, ys, *counts))
    return _Piece(run, metric, xs, ys, (counts[0], counts[1]))


def _x_of(x: str, metric: str, table: dict[str, Any]) -> str:
    """Column of x for a metric: that of the metric's writer if there is one."""
    own = with_role(x, split_role(metric)[1])
    return own if own in table else x


def _each_rank_apart(data_root: Path, pairs: Sequence[tuple[str, str]], metrics: Sequence[str]) -> list[str]:
    """Names of the metrics of rank 0, followed by those of the other ranks."""
    known = _known_columns(data_root, pairs)
    found: list[str] = []
    for metric in metrics:
        names = of_all_roles(metric, known)
        if len(names) == 1 and known:
            names = of_each_rank(
                full_name(metric, known, f"none of these runs has the metric {metric!r}"), known
            )
        found += names
    return list(dict.fromkeys(found))


def _tables(
    data_root: Path,
    read: Read,
    pairs: Sequence[tuple[str, str]],
    names: Sequence[str],
    further: Sequence[str],
    ranks: Ranks | None,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Columns of each run, and name → full name; also the columns `further` of runs that have them.

    Raises:
        UnknownNameError: no run has a column, though they have others.
    """
    names = list(dict.fromkeys(names))
    tables = _warned(read(pairs, [*names, *further], ranks))
    full = {name: name for name in names}
    if all(any(name in table for table in tables) for name in names):
        return tables, full
    known = names_of_ranks(_known_columns(data_root, pairs), ranks)
    if known:
        names = [one for name in names for one in of_all_roles(name, known)]
        full = {name: full_name(name, known, f"none of these runs has the metric {name!r}") for name in names}
        counts = [f"{name}{OF_RANKS}" for name in full.values()] if ranks == "mean" else []
        tables = _warned(read(pairs, list(dict.fromkeys([*full.values(), *further, *counts])), ranks))
    return tables, full


def _known_columns(data_root: Path, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """All columns of runs, those of the newest run first."""
    known: dict[str, None] = {}
    for table, index in reversed(pairs):
        with suppress(DatabaseError, OSError):
            chain = chain_of(data_root, table, index)
            known |= dict.fromkeys(chain_names(chain, f"{data_root}/{LOG}/{table}"))
    return list(known)


def _warned(found: Sequence[dict[str, Any] | DatabaseError | OSError]) -> list[dict[str, Any]]:
    """Columns of each run; none for a broken table, with a warning."""
    tables: list[dict[str, Any]] = []
    for table in found:
        if isinstance(table, Exception):
            warn_broken(table)
        tables.append({} if isinstance(table, Exception) else table)
    return tables


def _finite(
    xs: NDArray[np.float64], ys: NDArray[np.float64], bound: float | tuple[float, float] | None
) -> NDArray[np.bool_]:
    """Mask of the rows with a number in x and y, inside the bound."""
    keep: NDArray[np.bool_] = ~(np.isnan(xs) | np.isnan(ys))
    if bound is not None:
        low, high = bound if isinstance(bound, tuple) else (-np.inf, bound)
        keep &= (xs >= low) & (xs <= high)
    return keep
