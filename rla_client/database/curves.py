"""Curves of many runs in one long DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np
    import pandas as pd

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
    pieces: list[tuple[int, int, Any, Any]] = []
    for run, table in enumerate(tables):
        if isinstance(table, Exception):
            warn_broken(table)
            continue
        for metric, name in enumerate(metrics):
            if x in table and name in table:
                pieces.append((run, metric, *_finite(table[x], table[name], bound)))
    lengths = [len(piece[2]) for piece in pieces]
    empty = np.empty(0)
    run_codes = np.repeat(np.array([piece[0] for piece in pieces], dtype=np.int64), lengths)
    tables_named = list(dict.fromkeys(table for table, _ in pairs))
    indices = list(dict.fromkeys(index for _, index in pairs))
    of_table = np.array([tables_named.index(table) for table, _ in pairs], dtype=np.int64)
    position = {index: place for place, index in enumerate(indices)}
    of_index = np.array([position[index] for _, index in pairs], dtype=np.int64)
    metric_names = list(dict.fromkeys(metrics))
    metric_codes = np.repeat(
        np.array([metric_names.index(metrics[piece[1]]) for piece in pieces], dtype=np.int64), lengths
    )
    frame: pd.DataFrame = pd.DataFrame(
        {
            "table": pd.Categorical.from_codes(of_table[run_codes], pd.Index(tables_named)),
            "index": pd.Categorical.from_codes(of_index[run_codes], pd.Index(indices)),
            "metric": pd.Categorical.from_codes(metric_codes, pd.Index(metric_names)),
            "x": np.concatenate([piece[2] for piece in pieces]) if pieces else empty,
            "value": np.concatenate([piece[3] for piece in pieces]) if pieces else empty,
        }
    )
    return frame


def _finite(xs: Any, ys: Any, bound: float | tuple[float, float] | None) -> tuple[Any, Any]:  # noqa: ANN401
    import numpy as np

    keep = ~(np.isnan(xs) | np.isnan(ys))
    if bound is not None:
        low, high = bound if isinstance(bound, tuple) else (-np.inf, bound)
        keep &= (xs >= low) & (xs <= high)
    return (xs, ys) if keep.all() else (xs[keep], ys[keep])
