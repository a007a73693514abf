"""DataFrame of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla_client.contract.errors import extra
from rla_client.contract.layout import TIME_STEP
from rla_client.database.clock import clock
from rla_client.database.records.record import Record

if TYPE_CHECKING:
    import pandas as pd


DATA_ROOT_ATTRIBUTE = "rla_data_root"  # of DataFrames of runs: tells a plot where to read their curves


def runs_frame(data_root: Path, records: Sequence[Record], *, whole: bool = True) -> pd.DataFrame:
    """DataFrame that `Database.runs` returns: one row per record, in their order.

    Args:
        data_root: data root of the runs.
        records: one row each, in this order.
        whole: False leaves out hyper-parameters and metrics.
    """
    with extra("read", "a DataFrame of runs"):
        import pandas as pd

    now = clock()
    fixed: pd.DataFrame = pd.DataFrame(
        {
            "index": [record.index for record in records],
            "table": [record.table for record in records],
            "time": pd.to_datetime([datetime.fromtimestamp(record.opened) for record in records]),  # noqa: DTZ006
            "host": [record.host for record in records],
            "state": [record.shown_state(now) for record in records],
            "time-step": [record.time_step for record in records],
            "duration": [record.duration_s for record in records],
            "tags": [list(record.tags) for record in records],
            "note": [record.note for record in records],
            "display_name": [record.display_name for record in records],
        }
    )
    fixed.attrs[DATA_ROOT_ATTRIBUTE] = str(data_root)
    if not whole:
        return fixed
    taken = set(fixed.columns)
    hyper = pd.DataFrame(_parameters(records), index=fixed.index)
    hyper.columns = pd.Index([f"hp:{name}" if name in taken else name for name in hyper.columns])
    taken |= set(hyper.columns)
    metrics = pd.DataFrame([record.metrics for record in records], index=fixed.index)
    metrics = metrics.drop(columns=[TIME_STEP], errors="ignore")
    metrics.columns = pd.Index([f"last:{name}" if name in taken else name for name in metrics.columns])
    found: pd.DataFrame = pd.concat([fixed, hyper, metrics], axis=1)
    found.attrs[DATA_ROOT_ATTRIBUTE] = str(data_root)
    return found


def _parameters(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Parameters of each run by dotted name; a name that is a dict in some runs only is one column, too."""
    found = [record.hyper.flat() for record in records]
    names = {name for values in found for name in values}
    for record, values in zip(records, found, strict=True):
        dotted = [name for name in values if "." in name]
        above = {name[:place] for name in dotted for place, letter in enumerate(name) if letter == "."}
        values.update({name: record.hyper.dotted(name) for name in above & (names - values.keys())})
    return found
