"""Samples of language models in tables that are logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from rla_client.integrations.wandb.values import Table
from rla_client.log_row import log_samples
from rla_client.media.row_media import is_media
from rla_client.samples.completion_tables import (
    STEPS,
    TrlTables,
    are_of_trl,
    are_samples,
    known_names,
    samples_name,
    single_rows,
    step_of_row,
    trl_rows,
)
from rla_client.stream.values import MAX_DEPTH

_PLAIN = frozenset({str, int, float, bool, type(None), list, dict, tuple})
_NESTED = frozenset({list, tuple, dict})
_TRL = "completions"  # what TRL calls its table


class SampleTables:
    """Tables of a run that become samples of it.

    Args:
        config: of the run: its hyper-parameters when a table is logged.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._trl: dict[str, TrlTables] = {}
        self._logged: dict[str, Counter[int]] = {}  # marks of all rows of the last table of each key

    def log(self, key: str, table: Table, step: float, whole: Table) -> None:
        """Keep the rows of a table that has completions with prompts or rewards as samples of the run, too.

        Args:
            key: under which it is logged; `val/…`, `eval-…` are samples of an evaluation.
            table: with the rows that are new.
            step: of rows that say none.
            whole: the table as it was logged: `table` itself where it does not begin with the last.
        """
        columns = [str(column) for column in table.columns]
        if not are_samples(columns):
            return
        of_trl = key.rpartition("/")[2] == _TRL and are_of_trl(columns)
        tells_steps = not of_trl and not {*STEPS}.isdisjoint(columns)
        data = self._new(key, table, whole) if tells_steps else table.data
        rows: Sequence[Any] = single_rows([_row(columns, cells) for cells in data])
        name = samples_name(key)
        if of_trl:
            tables = self._trl.setdefault(key, TrlTables(self._config))
            rows, found = tables.new_rows(rows, step)
            name = samples_name(name, found)
        steps = [step if (own := step_of_row(row)) is None else own for row in rows]
        if key.rpartition("/")[2] == _TRL:
            rows = trl_rows(rows, self._config.get("reward_weights"))
        for at, numbers in groupby(range(len(rows)), lambda number: steps[number]):
            given = [known_names(rows[number], without=STEPS) for number in numbers]
            log_samples(given, step=at, name=name)

    def _new(self, key: str, table: Table, whole: Table) -> list[Any]:
        """The rows that the last table had not, wherever they are: the newest first, or the last ten.

        Of a table without steps nobody could tell an old row from a new one that is equal.
        """
        marks = [_mark(row) for row in table.data]
        if table is not whole:  # the rest is in the last one
            self._logged.setdefault(key, Counter()).update(marks)
            return table.data
        before, self._logged[key] = self._logged.get(key, Counter()), Counter(marks)
        new = []
        for row, mark in zip(table.data, marks, strict=True):
            if before[mark]:
                before[mark] -= 1
            else:
                new.append(row)
        return new


def _row(columns: Sequence[str], cells: Sequence[Any]) -> dict[str, Any]:
    """A row without its media, which are in the table's own files."""
    if _PLAIN.issuperset(map(type, cells)):
        return dict(zip(columns, cells, strict=False))
    return {
        name: cell.item() if isinstance(cell, np.generic) else cell
        for name, cell in zip(columns, cells, strict=False)
        if type(cell) in _PLAIN or not is_media(cell)
    }


def _mark(row: Sequence[Any]) -> int:
    """A number by which a row is known again; it holds none of its cells."""
    return hash(tuple(map(_plain_part, row)))


def _plain_part(cell: Any, path: tuple[int, ...] = ()) -> Hashable:
    """What a cell is known by: its texts and numbers, and of anything else the kind alone."""
    kind = type(cell)
    if kind is str:
        return cell
    if kind in _NESTED and len(path) < MAX_DEPTH and id(cell) not in path:
        items = [part for item in cell.items() for part in item] if kind is dict else cell
        return kind.__name__, *(_plain_part(one, (*path, id(cell))) for one in items)
    if kind in _NESTED or not (kind in _PLAIN or isinstance(cell, np.generic)):
        return (kind,)
    return (repr(cell),)  # NaN is unequal to itself, 1 equal to True
