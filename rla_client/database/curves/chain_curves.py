"""Combined table of a chain's items.

The valid rows of all items of a chain (see `tree.chains`) make one table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from rla_client.contract.errors import extra
from rla_client.contract.layout import TIME_STEP
from rla_client.database.curves.csv_tail import read_tail
from rla_client.database.curves.progress_csv import PROGRESS_FILE, read_columns
from rla_client.database.curves.rank_tables import Ranks, merges_ranks, rank_columns
from rla_client.database.curves.stream_tables import roles_of, split_role, table_of, with_role
from rla_client.database.tree.chains import ChainLink

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Columns = dict[str, NDArray[np.float64]]


def chain_columns(
    chain: Sequence[ChainLink],
    read: Callable[[str, Sequence[str]], Columns],
    names: Sequence[str],
    ranks: Ranks | None = None,
) -> Columns:
    """Columns of a chain's rows, as if it were one run.

    Args:
        chain: see `chain_of`.
        read: reads columns of one item, by index and names; missing columns are left out.
        names: columns.
        ranks: the ranks that `read` gives, see `rank_columns`.

    Returns:
        Name → values, shape (rows,), NaN for items without this column.

    Raises:
        Errors of `read`; but items without a table have no rows.
    """
    with extra("read", "reading a run that continues another"):
        import numpy as np

    parts = []
    of_roles = merges_ranks(ranks) or any(split_role(name)[1] for name in names if "@" in name)
    for link in chain:
        try:
            part = read(link.index, list(dict.fromkeys([*names, TIME_STEP])))
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        parts.append(_cut(part, link, of_roles=of_roles))
    lengths = [max((len(column) for column in part.values()), default=0) for part in parts]
    found = {}
    for name in names:
        if any(name in part for part in parts):
            columns = [
                part[name] if name in part else np.full(length, np.nan)
                for part, length in zip(parts, lengths, strict=True)
            ]
            found[name] = np.concatenate(columns)
    return found


def read_chain(
    chain: Sequence[ChainLink], table_folder: str, names: Sequence[str], ranks: Ranks | None = None
) -> Columns:
    """Columns of a chain's rows, read from the files of its items; see `chain_columns`."""

    def read(index: str, some: Sequence[str]) -> Columns:
        return rank_columns(f"{table_folder}/{index}/{PROGRESS_FILE}", some, read_columns, ranks)

    return chain_columns(chain, read, names, ranks)


def _cut(part: Columns, link: ChainLink, *, of_roles: bool) -> Columns:
    if link.rows is not None and not (of_roles and link.time_step is not None):  # of the main process
        return {name: column[: link.rows] for name, column in part.items()}
    if link.time_step is not None and TIME_STEP in part:
        keep = part[TIME_STEP] <= link.time_step
        return {name: column[keep] for name, column in part.items()}
    return part


def chain_names(chain: Sequence[ChainLink], table_folder: str) -> list[str]:
    """Columns of a chain's tables, those of the last item first; in each item the columns of roles come last.

    Raises:
        BrokenFileError: a table is broken.
        OSError: the table of the last item cannot be opened.
    """
    names: list[str] = []
    for link in reversed(chain):
        folder = f"{table_folder}/{link.index}"
        roles = roles_of(folder)
        try:
            names += read_tail(f"{folder}/{PROGRESS_FILE}").columns
        except FileNotFoundError:
            if len(chain) == 1 and not roles:
                raise
        for role in roles:
            with suppress(FileNotFoundError):
                columns = read_tail(table_of(f"{folder}/{PROGRESS_FILE}", role)).columns
                names += [with_role(name, role) for name in columns]
    return list(dict.fromkeys(names))
