"""Curves of many runs in one long DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rla_client.database.chains import chain_columns, chain_of
from rla_client.database.csv_table import TIME_STEP
from rla_client.database.records import PROGRESS_FILE, clock
from rla_client.errors import DatabaseError
from rla_client.layout import LOG

if TYPE_CHECKING:
    import pandas as pd

    from rla_client.database.runs import Database

READERS = 2  # threads; parsing a CSV lets go of the interpreter lock, more wait for the disk


def long_frame(
    database: Database,
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    x: str,
    bound: float | tuple[float, float] | None,
) -> pd.DataFrame:
    """See `Database.curves`."""
    import numpy as np
    import pandas as pd

    pieces = _pieces(database, pairs, metrics, x, bound)
    lengths = [len(piece.xs) for piece in pieces]

    def codes(places: Sequence[int]) -> Any:  # noqa: ANN401 - one place a row
        return np.repeat(np.array(places, dtype=np.int64), lengths)

    def category(names: Sequence[str], of_piece: Sequence[str]) -> Any:  # noqa: ANN401 - a pandas Categorical
        known = {name: place for place, name in enumerate(dict.fromkeys(names))}
        return pd.Categorical.from_codes(codes([known[name] for name in of_piece]), pd.Index(list(known)))

    empty = [np.empty(0)]
    frame: pd.DataFrame = pd.DataFrame(
        {
            "table": category([table for table, _ in pairs], [piece.run[0] for piece in pieces]),
            "index": category([index for _, index in pairs], [piece.run[1] for piece in pieces]),
            "metric": category(metrics, [piece.metric for piece in pieces]),
            "x": np.concatenate([piece.xs for piece in pieces] or empty),
            "value": np.concatenate([piece.ys for piece in pieces] or empty),
        }
    )
    return frame


class _Piece(NamedTuple):
    """One metric of one run; arrays of shape (points,)."""

    run: tuple[str, str]
    metric: str
    xs: Any
    ys: Any


def _pieces(
    database: Database,
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    x: str,
    bound: float | tuple[float, float] | None,
) -> list[_Piece]:
    from concurrent.futures import ThreadPoolExecutor

    from rla_client.database.runs import warn_broken

    cache = database.curve_cache()
    now_ns = int(clock() * 1e9)
    names = list(dict.fromkeys([x, *metrics]))

    continued = database.links()

    def columns(table: str, index: str, wanted: Sequence[str]) -> dict[str, Any]:
        path = f"{database.data_root}/{LOG}/{table}/{index}/{PROGRESS_FILE}"
        return cache.columns(path, wanted, now_ns)

    def read(pair: tuple[str, str]) -> dict[str, Any] | Exception:
        table, index = pair
        try:
            if pair not in continued:
                return columns(table, index, names)
            chain = chain_of(database.data_root, table, index)
            return chain_columns(chain, lambda one, wanted: columns(table, one, wanted), names, TIME_STEP)
        except FileNotFoundError:
            return {}
        except (DatabaseError, OSError) as error:
            return error

    with ThreadPoolExecutor(READERS) as pool:
        tables = list(pool.map(read, pairs))
    cache.trim()
    pieces: list[_Piece] = []
    for run, table in zip(pairs, tables, strict=True):
        if isinstance(table, Exception):
            warn_broken(table)
            continue
        pieces += [
            _Piece(run, name, *_finite(table[x], table[name], bound))
            for name in metrics
            if x in table and name in table
        ]
    return pieces


def _finite(xs: Any, ys: Any, bound: float | tuple[float, float] | None) -> tuple[Any, Any]:  # noqa: ANN401
    import numpy as np

    keep = ~(np.isnan(xs) | np.isnan(ys))
    if bound is not None:
        low, high = bound if isinstance(bound, tuple) else (-np.inf, bound)
        keep &= (xs >= low) & (xs <= high)
    return (xs, ys) if keep.all() else (xs[keep], ys[keep])
