"""The earlier run that `wandb.init` continues."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client.contract.agent.places import find_places
from rla_client.init_run import default_data_root, starts_agent
from rla_client.integrations.wandb.values import UsageError
from rla_client.run.current_logger import warn
from rla_client.run.run_mode import disabled

if TYPE_CHECKING:
    from rla_client.run.resume.find_run import FoundRun


def earlier_run(table: str, run_id: str | None, *, must: bool) -> FoundRun | None:
    """The newest run of an id, after an agent has written its rows from the spool.

    Raises:
        UsageError: `must` is set and there is no such run.
    """
    from rla_client.run.resume import earlier_streams, find_run  # noqa: PLC0415 - rarely needed
    from rla_client.run.resume.find_run import find_unfinished  # noqa: PLC0415

    root, late = default_data_root(), ""
    if run_id is not None and not disabled():
        places, where = find_places(), (os.path.realpath(root), table, run_id)
        waiting = [
            stream
            for stream in earlier_streams.all_streams(places)
            if (opening := stream.opening)
            and (earlier_streams.root_of(opening), opening.table, opening.run_key) == where
        ]
        with contextlib.suppress(earlier_streams.StillWritingError):  # the stored rows count
            late = earlier_streams.await_taken_in(places, waiting, autostart=starts_agent())
        item = find_unfinished(str(root), table, run_id, any_state=True)
        if late and (item is not None or not must):
            warn(f"run {run_id!r} does not continue behind all of its rows: {late}")
        if item is not None:
            return find_run.read_run(item)
    if must:
        raise UsageError(
            f"resume='must', but table {table!r} of {root} has no run {run_id!r}{late and f': {late}'}"
        )
    return None


def config_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The `config` of an earlier run's `init`, among its hyper-parameters."""
    ours = {key if f"run_{key}" not in parameters else f"run_{key}" for key in ("name", "group", "job_type")}
    return {key: value for key, value in parameters.items() if key not in ours | {"resumed_from"}}
