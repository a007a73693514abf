"""Tables of the lake from runs.

Memory is bounded: a part holds at most `MAX_RUNS` runs with `MAX_CSV_BYTES` of progress.csv in total; a
run with a larger one stays out of the lake.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import BrokenFileError
from rla_client.contract.layout import LOG, TIME_STEP, TIMESTAMP
from rla_client.database.catalogue import COLUMNS
from rla_client.database.curves.progress_csv import PROGRESS_FILE, read_all, recorded_nan
from rla_client.database.curves.stream_tables import roles_of, split_role, table_of
from rla_client.database.lake.part_files import schemas
from rla_client.database.records.record_reader import to_float
from rla_client.database.tree.items import files_below, run_items
from rla_client.run.parameters.hyper_params import HyperParams

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


if TYPE_CHECKING:
    Content = tuple[dict[str, NDArray[np.float64]], dict[str, list[str | None]]]  # as `read_all` gives it
SYSTEM_FILE = "system.csv"
MAX_CSV_BYTES = 48 << 20  # of a part's runs: about 5 million cells
MAX_SYSTEM_BYTES = 16 << 20  # of one run: two months of samples, one each 30 s
MAX_FILES = 10_000  # of one run


@dataclass(slots=True)
class LakeRun:
    """Content of one run for the lake.

    Attributes:
        row: row of the catalogue, in the order of its `COLUMNS`.
        signature: signature of the files that were read.
        rows: progress.csv, as `read_all` gives it; None without one.
        system: system.csv, likewise.
        files: (kind, path in the item, bytes, mtime) of each file.
        samples: result of `read_samples`; None without samples.
        samples_signature: signature of the files of samples.
    """

    row: tuple[Any, ...]
    signature: str
    rows: Content | None = None
    system: Content | None = None
    files: list[tuple[str, str, int, float]] = field(default_factory=list)
    samples: pa.Table | None = None
    samples_signature: str = ""

    @property
    def index(self) -> str:
        """`YYYY/MM/DD/<name>`."""
        return str(self.row[1])

    @property
    def run(self) -> str:
        """`<table>/<index>`."""
        return f"{self.row[0]}/{self.row[1]}"


def read_rows(data_root: Path, table: str, index: str) -> Content | None:
    """A run's progress.csv and the tables of its roles, with all columns of a role named `<column>@<role>`.

    Returns:
        None without any table.

    Raises:
        BrokenFileError, OSError: a table cannot be read.
    """
    path = f"{data_root}/{LOG}/{table}/{index}/{PROGRESS_FILE}"
    found: Content | None = None
    with suppress(FileNotFoundError, NotADirectoryError):
        found = read_all(path)
    for role in roles_of(os.path.dirname(path)):
        with suppress(FileNotFoundError):
            columns, texts = read_all(table_of(path, role))
            held = found or ({}, {})
            found = (
                {f"{name}@{role}": column for name, column in columns.items()} | held[0],
                {f"{name}@{role}": column for name, column in texts.items()} | held[1],
            )
    return found


def read_system(data_root: Path, table: str, index: str) -> Content | None:
    """A run's system.csv; None if it is missing, too large or cannot be read."""
    path = f"{data_root}/{LOG}/{table}/{index}/{SYSTEM_FILE}"
    try:
        return None if os.stat(path).st_size > MAX_SYSTEM_BYTES else read_all(path)
    except (OSError, BrokenFileError):
        return None


def read_files(data_root: Path, table: str, index: str) -> list[tuple[str, str, int, float]]:
    """(kind, path in the item, bytes, mtime) of a run's files, at most `MAX_FILES`."""
    found: list[tuple[str, str, int, float]] = []
    for item in run_items(data_root, table, index):
        for start in item.paths:
            for path in files_below(start) if os.path.isdir(start) else [start]:
                if len(found) == MAX_FILES:
                    return found
                try:
                    stat = os.lstat(path)
                except OSError:
                    continue
                name = os.path.relpath(path, start) if path != start else os.path.basename(path)
                found.append((item.kind, name, stat.st_size, stat.st_mtime))
    return found


def make_tables(runs: Sequence[LakeRun], names: Iterable[str]) -> dict[str, pa.Table]:
    """Tables of runs by file name; see `schemas`."""
    return {name: _MAKERS.get(name, _table)(name, runs) for name in names}


def _table(name: str, runs: Sequence[LakeRun]) -> pa.Table:
    import pyarrow as pa

    rows = [(place, one.run, *row) for place, one in enumerate(runs) for row in _ROWS[name](one)]
    schema = schemas()[name]
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else ([] for _ in schema)
    make = {pa.string(): _safe, pa.float64(): _float}
    arrays = [
        pa.array(map(make[field.type], column) if field.type in make else column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)


def _params(one: LakeRun) -> Iterator[tuple[Any, ...]]:
    hyper = json.loads(one.row[COLUMNS.index("hyper")] or "{}", object_hook=HyperParams)
    for name, value in hyper.flat().items():
        yield name, _spelled(value), _float(value)


def _last(one: LakeRun) -> Iterator[tuple[Any, ...]]:
    for name, value in json.loads(one.row[COLUMNS.index("metrics")] or "{}").items():
        yield name, _float(value), value if isinstance(value, str) else None


_ROWS: dict[str, Callable[[LakeRun], Iterable[tuple[Any, ...]]]] = {  # cells after place and run
    "runs": lambda one: [(one.signature, *one.row, one.samples_signature)],
    "params": _params,
    "last": _last,
    "files": lambda one: one.files,
}


def _curves_table(name: str, runs: Sequence[LakeRun]) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    clock = TIME_STEP if name == "rows" else TIMESTAMP
    keys: list[tuple[int, str, str]] = []
    steps: list[Any] = []
    values: list[Any] = []
    texts: list[list[str | None] | None] = []
    for place, one in enumerate(runs):
        columns, held = (one.rows if name == "rows" else one.system) or ({}, {})
        for metric, column in columns.items():
            name_of, role = split_role(metric)
            of_role = f"{clock}@{role}" if role else clock
            keys.append((place, one.run, metric))
            values.append(column)
            steps.append(None if name_of == clock else columns.get(of_role, columns.get(clock)))
            texts.append(held.get(metric))
    empty = [np.empty(0)]
    places, names, metrics = zip(*keys, strict=True) if keys else ((), (), ())
    schema = schemas()[name]
    return pa.table(
        [
            pa.array(places, pa.int32()),
            pa.array(map(_safe, names), pa.string()),
            pa.array(map(_safe, metrics), pa.string()),
            _lists(steps, empty),
            _lists(values, empty),
            pa.array(
                [None if one is None else [_safe(text) for text in one] for one in texts],
                schema.field("text").type,
            ),
        ],
        schema=schema,
    )


def _samples_table(name: str, runs: Sequence[LakeRun]) -> pa.Table:
    import pyarrow as pa

    tables = [schemas()[name].empty_table()]
    for place, one in enumerate(runs):
        if one.samples is not None:
            count = one.samples.num_rows
            columns = [
                pa.array([place] * count, pa.int32()),
                pa.array([one.run] * count, pa.string()),
                *one.samples.columns,
            ]
            tables.append(pa.table(columns, schema=tables[0].schema))
    return pa.concat_tables(tables)


_MAKERS: dict[str, Callable[[str, Sequence[LakeRun]], pa.Table]] = {
    "rows": _curves_table,
    "system": _curves_table,
    "samples": _samples_table,
}


def _lists(columns: Sequence[Any], empty: list[Any]) -> pa.Array:
    """A list of numbers per column, null for None; numbers that were not recorded are null."""
    import numpy as np
    import pyarrow as pa

    lengths = [0 if column is None else len(column) for column in columns]
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    flat = np.concatenate([column for column in columns if column is not None] or empty)
    absent = np.isnan(flat) & ~recorded_nan(flat)
    numbers = pa.array(flat, pa.float64(), mask=absent if absent.any() else None, from_pandas=False)
    missing = np.array([column is None for column in columns], dtype=bool)
    return pa.ListArray.from_arrays(
        pa.array(offsets), numbers, mask=pa.array(missing) if missing.any() else None
    )


def _safe(value: object) -> object:
    """A text that UTF-8 can encode; other values as they are."""
    return (
        value.encode("utf-8", "replace").decode() if isinstance(value, str) and not value.isascii() else value
    )


def _float(value: object) -> float | None:
    return to_float(value) if isinstance(value, int | float) else None


def _spelled(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, default=str) if isinstance(value, list | dict) else str(value)
