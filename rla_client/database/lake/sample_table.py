"""SQL table of all runs' samples.

One row per sample, from the index (`database.samples.sample_index`), which has only the beginnings of long
texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError, DatabaseError
from rla_client.contract.layout import SAMPLES
from rla_client.database.lake.part_files import SAMPLE_NUMBERS, SAMPLE_TEXTS, schemas
from rla_client.database.samples.sample_index import SampleIndex
from rla_client.database.tree.chains import ChainLink, chain_of

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS = 2_000_000  # about 1 kB each


def sample_table(
    data_root: Path, runs: Iterable[tuple[str, str]], warn: Callable[[str], None] = lambda _: None
) -> pa.Table:
    """Samples of runs; runs that cannot be read have none.

    Args:
        data_root: of the database.
        runs: task table and index of each run.
        warn: called with a message about each unreadable run or file.

    Raises:
        DatabaseError: there are too many samples.
    """
    import pyarrow as pa

    tables = [_schema().empty_table()]
    total = 0
    for table, run in runs if (data_root / SAMPLES).is_dir() else ():
        try:
            index = _read(data_root, table, chain_of(data_root, table, run))
        except (BrokenFileError, OSError) as error:
            warn(f"{table}/{run}: {error}")
            continue
        for path in index.unread:
            warn(f"left out, as you may not read it: {path}")
        total += len(index)
        if total > MAX_ROWS:
            raise DatabaseError(
                f"the runs have more than {MAX_ROWS} samples that are not in the lake, too many for a query\n"
                "hint: rla lake build; rla export --samples FILE.parquet -r RUN writes those of one run"
            )
        if len(index):
            names = pa.array([f"{table}/{run}"] * len(index), pa.string())
            tables.append(_table(index).add_column(0, "run", names))
    return pa.concat_tables(tables)


def read_samples(data_root: Path, table: str, run: str) -> pa.Table:
    """Samples of one run, without those of the run that it continues.

    Raises:
        BrokenFileError, OSError: the samples cannot be read.
    """
    return _table(_read(data_root, table, [ChainLink(run)]))


def _read(data_root: Path, table: str, chain: Sequence[ChainLink]) -> SampleIndex:
    index = SampleIndex(data_root, table, chain)
    index.refresh()
    return index


def _schema() -> pa.Schema:
    schema = schemas()["samples"]
    return schema.remove(schema.get_field_index("place"))


def _table(index: SampleIndex) -> pa.Table:
    import pyarrow as pa

    count = len(index)
    columns: dict[str, Any] = {}
    for name in SAMPLE_TEXTS:
        columns[name] = [_text(value) for value in index.columns.get(name, [None] * count)]
    for name in SAMPLE_NUMBERS:
        columns[name] = [_number(value) for value in index.columns.get(name, [None] * count)]
    others = {
        name: column for name, column in index.columns.items() if name not in {*SAMPLE_TEXTS, *SAMPLE_NUMBERS}
    }
    columns["numbers"] = _maps(others, count, _number)
    columns["texts"] = _maps(others, count, lambda value: value if isinstance(value, str) else None)
    return pa.table(columns, schema=_schema().remove(0))


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
