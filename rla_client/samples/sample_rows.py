"""Rows of samples from the forms in which frameworks hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized, ValuesView
from itertools import islice
from typing import Any

from rla_client.contract.errors import ArgumentError
from rla_client.stream.column_cells import column_cells

FORMS = "a list of dicts, a dict of lists, or a DataFrame"
MAX_ROWS = 1_000_000  # of an iterator, which may have no end
MAX_COLUMNS = 10_000  # of a mapping that is no dict, which may have no end either


def rows_of(samples: object) -> list[Mapping[Any, Any]]:
    """One mapping per sample.

    Args:
        samples: a list of mappings; a mapping of columns of one length, in which a single value counts for
            each row; or a DataFrame of pandas, polars or datasets. A column is a sequence, an array or,
            beside one of these, an iterator.

    Raises:
        ArgumentError: it is none of these.
    """
    if isinstance(samples, Mapping):
        return _of_columns(_ending(samples))
    if (columns := _columns_of_frame(samples)) is not None:
        return _of_columns(columns)
    if isinstance(samples, str | bytes) or not isinstance(samples, Iterable):
        raise ArgumentError(f"log_samples takes {FORMS}; got {type(samples).__name__}")
    rows = list(samples if isinstance(samples, Sized) else islice(samples, MAX_ROWS + 1))
    if len(rows) > MAX_ROWS and not isinstance(samples, Sized):
        raise ArgumentError(f"log_samples takes {FORMS}; this iterator has more than {MAX_ROWS} rows")
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ArgumentError(f"log_samples takes {FORMS}; row {number} is of type {type(row).__name__}")
        if type(row) is not dict:
            rows[number] = _ending(row)
    return rows


def _ending(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """A mapping as a dict.

    Raises:
        ArgumentError: it is none and has more than MAX_COLUMNS items.
    """
    found = given if type(given) is dict else dict(islice(given.items(), MAX_COLUMNS + 1))
    if found is not given and len(found) > MAX_COLUMNS:
        told = f"this {type(given).__name__} has more than {MAX_COLUMNS} columns"
        raise ArgumentError(f"log_samples takes {FORMS}; {told}")
    return found


def _of_columns(columns: Mapping[Any, Any]) -> list[Mapping[Any, Any]]:
    iterators = [name for name, value in columns.items() if isinstance(value, Iterator)]
    values = {name: None if name in iterators else _column(value) for name, value in columns.items()}
    lengths = _lengths(values)
    if iterators and not lengths:
        told = ", ".join(map(str, iterators))
        raise ArgumentError(f"log_samples takes an iterator beside a list, which says its length; got {told}")
    count = lengths.pop() if lengths else int(bool(columns))
    for name in iterators:
        values[name] = list(islice(columns[name], count + 1))  # it may have no end
    _lengths(values)
    full = [[columns[name]] * count if value is None else value for name, value in values.items()]
    names = list(values)
    return [dict(zip(names, row, strict=True)) for row in zip(*full, strict=True)] if full else []


def _lengths(values: Mapping[Any, Sequence[Any] | None]) -> set[int]:
    """The one length of all columns; empty where none has one.

    Raises:
        ArgumentError: there are several.
    """
    lengths = {len(value) for value in values.values() if value is not None}
    if len(lengths) > 1:
        told = ", ".join(f"{name} {len(value)}" for name, value in values.items() if value is not None)
        raise ArgumentError(f"columns of samples have different lengths: {told}")
    return lengths


def _column(value: Any) -> Sequence[Any] | None:  # noqa: ANN401
    """The values of a column; None of a single value."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, str | bytes | bytearray):
        return None
    if isinstance(value, Sequence | ValuesView):  # deque, range, a column of datasets
        cells = list(islice(value, MAX_ROWS + 1))  # a range may be longer than memory
        if len(cells) > MAX_ROWS:
            told = f"a column of type {type(value).__name__} has more than {MAX_ROWS} values"
            raise ArgumentError(f"log_samples takes {FORMS}; {told}")
        return cells
    if getattr(value, "ndim", 0) and callable(getattr(value, "tolist", None)):
        if callable(getattr(value, "detach", None)):
            value = value.detach()
        return column_cells(value, keeps_nan=True)
    return column_cells(value, keeps_nan=True) if callable(getattr(value, "to_list", None)) else None


def _columns_of_frame(samples: Any) -> dict[str, Any] | None:  # noqa: ANN401
    """The columns of a DataFrame or of a Dataset of Hugging Face; None of anything else."""
    if callable(getattr(samples, "to_numpy", None)) and hasattr(samples, "columns"):  # pandas, polars
        names = list(samples.columns)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ArgumentError(f"the DataFrame has several columns {twice!r}")
        return {name: column_cells(samples[name], keeps_nan=True) for name in names}
    if isinstance(getattr(samples, "column_names", None), list) and callable(
        getattr(samples, "to_dict", None)
    ):
        found = samples.to_dict()
        return dict(found) if isinstance(found, Mapping) else None
    return None
