"""Reader of many runs' curves from the lake, the cache or the files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import DatabaseError
from rla_client.contract.layout import LOG
from rla_client.database.clock import clock
from rla_client.database.curves.chain_curves import chain_columns
from rla_client.database.curves.curve_cache import CurveCache
from rla_client.database.curves.progress_csv import PROGRESS_FILE
from rla_client.database.curves.rank_tables import Ranks, merges_ranks, rank_columns
from rla_client.database.curves.stream_tables import split_role
from rla_client.database.tree.chains import chain_of

if TYPE_CHECKING:
    from rla_client.database.lake.lake_reader import Lake


LAKE_FROM = 64  # runs: reading fewer from files is faster than importing pyarrow
READERS = 2  # threads; parsing a CSV releases the GIL, but more threads only wait for the disk


@dataclass(frozen=True, slots=True)
class Reader:
    """Sources of a database's curves.

    Attributes:
        data_root: of the database.
        cache: column cache on this machine.
        links: (table, index) of each run that continues another one → index of the other.
        lake: opens the lake if there is one; called only for many runs.
    """

    data_root: Path
    cache: CurveCache
    links: Mapping[tuple[str, str], str]
    lake: Callable[[], Lake | None]


def read_tables(
    reader: Reader, pairs: Sequence[tuple[str, str]], names: Sequence[str], ranks: Ranks | None = None
) -> list[dict[str, Any] | DatabaseError | OSError]:
    """Columns of each run; empty for a run without a table, an error for a broken one.

    Args:
        reader: sources of the curves.
        pairs: table and index of each run.
        names: columns; missing ones are left out.
        ranks: ranks of the columns without a role (see `rank_columns`).
    """
    from concurrent.futures import ThreadPoolExecutor

    now_ns = int(clock() * 1e9)

    def columns(table: str, index: str, wanted: Sequence[str]) -> dict[str, Any]:
        path = f"{reader.data_root}/{LOG}/{table}/{index}/{PROGRESS_FILE}"
        return rank_columns(path, wanted, lambda one, some: reader.cache.columns(one, some, now_ns), ranks)

    ready: dict[tuple[str, str], dict[str, Any]] = {}
    of_roles = merges_ranks(ranks) or any(
        split_role(name)[1] for name in names if "@" in name
    )  # the lake keeps ranks apart
    if len(pairs) >= LAKE_FROM and not of_roles and (lake := reader.lake()) is not None:
        single = [pair for pair in pairs if pair not in reader.links]  # chains are combined from files
        ready = lake.columns(single, names, now_ns)

    def read(pair: tuple[str, str]) -> dict[str, Any] | DatabaseError | OSError:
        table, index = pair
        if pair in ready:
            return ready[pair]
        try:
            if pair not in reader.links:
                return columns(table, index, names)
            chain = chain_of(reader.data_root, table, index)
            return chain_columns(chain, partial(columns, table), names, ranks)
        except FileNotFoundError:
            return {}
        except (DatabaseError, OSError) as error:
            return error

    if all(pair in ready for pair in pairs):
        return [ready[pair] for pair in pairs]
    with ThreadPoolExecutor(READERS) as pool:
        found = list(pool.map(read, pairs))
    reader.cache.trim()
    return found
