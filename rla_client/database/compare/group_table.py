"""Table of groups of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rla_client.database.compare.groups import SEED, Group, group_name, group_runs, of_one_length
from rla_client.database.compare.run_differences import differing_keys
from rla_client.database.filter.name_completion import full_metrics, full_names
from rla_client.database.records.likely_metric import likely_of
from rla_client.database.records.record import Record


@dataclass(frozen=True, slots=True)
class GroupTable:
    """Groups of runs by the values of some parameters.

    Attributes:
        by: full names of these parameters.
        metrics: full names of the metrics.
        rows: one tuple per group, with an entry for each metric; a single entry without metrics.
    """

    by: list[str]
    metrics: list[str]
    rows: list[tuple[Group, ...]]

    def of_unequal_length(self) -> list[str]:
        """Names of the groups with runs that ended at different time-steps."""
        return [
            group_name(self.by, same[0])
            for same in self.rows
            if any(not of_one_length(group.lengths) for group in same)
        ]


def tabulate_groups(
    records: Sequence[Record], by: Sequence[str], metrics: Sequence[str], now: float
) -> GroupTable:
    """Group runs by the values of fields, parameters or metrics.

    Args:
        records: the runs, oldest first.
        by: names; their last parts are enough.
        metrics: names; their last parts are enough; empty: the likely metric.
        now: Unix seconds.

    Raises:
        UnknownNameError: no run has one of the names.
    """
    full = full_names(set(by), records)
    by = [full[name] for name in by]
    likely = likely_of(records)
    chosen = full_metrics(metrics, records) or ([likely] if likely else [])
    columns = [group_runs(records, by, name, now) for name in chosen] or [group_runs(records, by, None, now)]
    return GroupTable(by, chosen, list(zip(*columns, strict=True)))


def settings(records: Sequence[Record]) -> list[str]:
    """Parameters that differ between runs, without seeds and names; preceded by `table` for several tables.

    A parameter with a different text in each run is a name, unless nothing else differs.
    """
    differing, flats = differing_keys(records)
    keys = [key for key in differing if key.rpartition(".")[2] != SEED]
    chosen = [key for key in keys if not _is_name([flat.get(key) for flat in flats])]
    keys = chosen if chosen or len(keys) < len(differing) else keys
    return [*(["table"] if len({record.table for record in records}) > 1 else []), *keys]


def _is_name(values: Sequence[object]) -> bool:
    texts = {value for value in values if isinstance(value, str)}
    return len(texts) == len(values) > 1
