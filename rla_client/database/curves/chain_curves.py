"""The rows of a chain's items as one table.

Of a chain (see `tree.chains`) the rows of all its items that count make one table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rla_client.contract.errors import extra
from rla_client.contract.layout import TIME_STEP
from rla_client.database.curves.csv_tail import read_tail
from rla_client.database.curves.progress_csv import PROGRESS_FILE, read_columns
from rla_client.database.tree.chains import Link

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Columns = dict[str, NDArray[np.float64]]


def chain_columns(
    chain: Sequence[Link], read: Callable[[str, Sequence[str]], Columns], names: Sequence[str]
) -> Columns:
    """Columns of a chain's rows as of one run's.

    Args:
        chain: see `chain_of`.
        read: columns of one item, by index and names; names that it has not are left out.
        names: columns.

    Returns:
        Name → values, shape (rows,), NaN where an item has no such column.

    Raises:
        What `read` raises; items of a chain without a table have no rows.
    """
    with extra("read", "reading a run that continues another"):
        import numpy as np

    parts = []
    for link in chain:
        try:
            part = read(link.index, list(dict.fromkeys([*names, TIME_STEP])))
        except FileNotFoundError:
            if len(chain) == 1:
                raise
            continue
        parts.append(_cut(part, link))
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


def read_chain(chain: Sequence[Link], table_folder: str, names: Sequence[str]) -> Columns:
    """Columns of a chain's rows, read from the files of its items; see `chain_columns`."""
    return chain_columns(
        chain, lambda index, some: read_columns(f"{table_folder}/{index}/{PROGRESS_FILE}", some), names
    )


def _cut(part: Columns, link: Link) -> Columns:
    if link.rows is not None:
        return {name: column[: link.rows] for name, column in part.items()}
    if link.time_step is not None and TIME_STEP in part:
        keep = part[TIME_STEP] <= link.time_step
        return {name: column[keep] for name, column in part.items()}
    return part


def chain_names(chain: Sequence[Link], table_folder: str) -> list[str]:
    """Columns of a chain's tables, those of the last item first.

    Raises:
        BrokenFileError: one is not a table.
        OSError: that of the last item cannot be opened.
    """
    names: list[str] = []
    for link in reversed(chain):
        try:
            names += read_tail(f"{table_folder}/{link.index}/{PROGRESS_FILE}").columns
        except FileNotFoundError:
            if len(chain) == 1:
                raise
    return list(dict.fromkeys(names))
