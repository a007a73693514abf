"""The run of a trial."""

from __future__ import annotations

import re

from rla_client.contract.errors import RlaError
from rla_client.run.current_logger import warn
from rla_client.run.item import ItemFolders
from rla_client.run.item_run import begin_beside
from rla_client.run.resume.earlier_streams import StillWritingError
from rla_client.run.resume.find_run import find_here
from rla_client.run.run_data import RunData
from rla_client.run.writing_rank import writes_runs

_DATE = re.compile(r"_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d$")  # which Tune appends to the name of an experiment


def table_of(experiment: str) -> str:
    """The experiment's name without the date that Tune may have appended."""
    return _DATE.sub("", experiment) or experiment


def find_run(data: RunData) -> tuple[ItemFolders | None, str]:
    """The trial's earlier run, and why rows of it may still be in the spool."""
    table, config, root = data.setup.configured()
    run_id, autostart = data.setup.run_id or "", config.agent.autostart
    return find_here(root, table, run_id, autostart=autostart, any_state=True)


def open_trial(data: RunData, *, known: bool) -> float | None:
    """Open the trial's run; if the trial is `known`, continue an earlier run.

    Returns:
        The time-step of the last row of a continued run; None for a new one.
    """
    fallback = f"{data.setup.run_id} cannot continue its run, a new one begins"
    earlier, late = find_run(data) if known and writes_runs() else (None, "")
    if late:
        warn(f"{fallback}: {late}")
    try:
        return begin_beside(data, earlier)
    except StillWritingError:
        raise
    except RlaError as error:
        if earlier is None:
            raise
        warn(f"{fallback}: {error}")
        return begin_beside(data)
