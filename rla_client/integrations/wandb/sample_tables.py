"""Samples of language models in tables that are logged."""

from __future__ import annotations

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

    def log(self, key: str, table: Table, step: float) -> None:
        """Keep the rows of a table that has completions with prompts or rewards as samples of the run, too.

        Args:
            key: under which it is logged; `val/…`, `eval-…` are samples of an evaluation.
            table: with the rows that are new.
            step: of rows that say none.
        """
        columns = [str(column) for column in table.columns]
        if not are_samples(columns):
            return
        rows: Sequence[Any] = single_rows([
            {name: cell for name, cell in zip(columns, cells, strict=False) if type(cell) in _PLAIN}
            for cells in table.data
        ])  # fmt: skip
        name = samples_name(key)
        if key.rpartition("/")[2] == _TRL and are_of_trl(columns):
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
