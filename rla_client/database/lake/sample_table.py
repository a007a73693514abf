"""Table of the samples of all runs, for SQL.

One row a sample: what its index has (`database.samples.sample_index`), so of long texts the first characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.layout import SAMPLES
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.tree.chains import chain_of

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 2_000_000  # some 1 kB each
_TEXTS = ("id", "name", "role", "group", "prompt", "completion")  # columns of their own
_NUMBERS = ("step", "time", "reward")


def sample_table(data_root: Path, runs: Iterable[tuple[str, str]]) -> pa.Table:
    """The samples of some runs; those that cannot be read have none.

    Args:
        data_root: of the database.
        runs: task table and index.

    Raises:
        DatabaseError: there are too many.
    """
    import pyarrow as pa

    tables = []
    total = 0
    for table, run in runs if (data_root / SAMPLES).is_dir() else ():
        index = SampleIndex(data_root, table, chain_of(data_root, table, run))
        try:
            index.refresh()
        except (BrokenFileError, OSError):
            continue
        total += len(index)
        if total > MAX_ROWS:
            raise DatabaseError(
                f"the runs have more than {MAX_ROWS} samples, too many for a query\n"
                "hint: rla export --samples FILE.parquet -r RUN writes those of one run"
            )
        if len(index):
            tables.append(_table(f"{table}/{run}", index))
    return pa.concat_tables(tables) if tables else _schema().empty_table()


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    return pa.schema(
        [
            ("run", text),
            *((name, text) for name in _TEXTS),
            *((name, number) for name in _NUMBERS),
            ("numbers", pa.map_(text, number)),
            ("texts", pa.map_(text, text)),
        ]
    )


def _table(run: str, index: SampleIndex) -> pa.Table:
    import pyarrow as pa

    count = len(index)
    columns: dict[str, Any] = {"run": [run] * count}
    for name in _TEXTS:
        columns[name] = [_text(value) for value in index.columns.get(name, [None] * count)]
    for name in _NUMBERS:
        columns[name] = [_number(value) for value in index.columns.get(name, [None] * count)]
    others = {name: column for name, column in index.columns.items() if name not in {*_TEXTS, *_NUMBERS}}
    columns["numbers"] = _maps(others, count, _number)
    columns["texts"] = _maps(others, count, lambda value: value if isinstance(value, str) else None)
    return pa.table(columns, schema=_schema())


def _maps(columns: dict[str, list[Any]], count: int, kept: Any) -> list[list[tuple[str, Any]]]:  # noqa: ANN401
    found: list[list[tuple[str, Any]]] = [[] for _ in range(count)]
    for name, column in columns.items():
        for row, value in enumerate(column):
            if value is not None and (one := kept(value)) is not None:
                found[row].append((name, one))
    return found


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
