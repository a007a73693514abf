"""Samples of language models in tables that are logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rla_client.integrations.wandb.values import Table
from rla_client.log_row import log_samples
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

_PLAIN = frozenset(
    {str, int, float, bool, type(None), list, dict, tuple}
)  # pictures are in the table's own files
_TRL = "completions"  # what TRL calls its table


class SampleTables:
    """Tables of a run that become samples of it.

    Args:
        config: of the run: its hyper-parameters when a table is logged.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._trl: dict[str, TrlTables] = {}
        self._logged: dict[str, list[tuple[Any, ...]]] = {}  # all rows of the last table of each key

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
        rows: Sequence[Any] = single_rows([
            {name: cell for name, cell in zip(columns, cells, strict=False) if type(cell) in _PLAIN}
            for cells in (self._new(key, table, whole) if tells_steps else table.data)
        ])  # fmt: skip
        name = samples_name(key)
        if of_trl:
            tables = self._trl.setdefault(key, TrlTables(self._config))
            rows, found = tables.new_rows(rows, step)
            name = samples_name(name, found)
        steps = [step if (own := step_of_row(row)) is None else own for row in rows]
        if key.rpartition("/")[2] == _TRL:
            rows = trl_rows(rows, self._config.get("reward_weights"))
        for at, numbers in groupby(range(len(rows)), lambda number: steps[number]):
            chosen = [known_names(rows[number]) for number in numbers]
            given = [{k: v for k, v in row.items() if k not in STEPS} for row in chosen]
            log_samples(given, step=at, name=name)

    def _new(self, key: str, table: Table, whole: Table) -> list[Any]:
        """The rows that the last table had not, wherever they are: the newest first, or the last ten.

        Of a table without steps nobody could tell an old row from a new one that is equal.
        """
        before, self._logged[key] = self._logged.get(key), [tuple(row) for row in whole.data]
        if table is not whole or not before:
            return table.data
        known, new = Counter(map(_mark, before)), []
        for row in table.data:
            mark = _mark(row)
            if known[mark]:
                known[mark] -= 1
            else:
                new.append(row)
        return new


def _mark(row: Sequence[Any]) -> tuple[str, ...]:
    return tuple(cell if type(cell) is str else repr(cell) for cell in row)
