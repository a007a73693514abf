"""Hyper-parameters of the open run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rla_client.run.current_logger import warn
from rla_client.run.parameters.parameter_changes import (
    CHANGE_KINDS,
    keep_changes,
    named_changes,
    parameter_changes,
)
from rla_client.run.parameters.parameter_file import (
    PARAMETER_KINDS,
    as_stored,
    parameter_file,
    write_parameters,
)
from rla_client.run.run import Run
from rla_client.run.state.run_archive import save_archive
from rla_client.stream.param_values import plain_hyper_param

if TYPE_CHECKING:
    from rla_client.run.run_data import RunData


def add_hyper_param(data: RunData, values: Mapping[str, Any]) -> None:
    """See `ExpManager.add_hyper_param`."""
    setup, run, item = data.setup, data.run, data.item
    former = {name: setup.hyper_param[name] for name in values if name in setup.hyper_param}
    setup.hyper_param = {**setup.hyper_param, **values}
    if run is None or item is None:
        return
    if former:
        now = {name: values[name] for name in former}
        note_changes(data, parameter_changes(as_stored(former), now, setup.secrets()), data.clock.get_time())
    name, content = parameter_file(setup.shown_parameters(), item)
    try:
        write_parameters(item, name, content)
    except OSError as error:
        warn(f"{name} was not written, the agent will: {error.strerror or error}")
    send_parameters(data, run, name, content)
    run.logger.secrets = setup.secrets()
    save_archive(data)


def note_changes(data: RunData, changed: Mapping[str, tuple[Any, Any]], step: float | None) -> None:
    """Record in the open run that hyper-parameters have changed at a time-step."""
    if changed and data.run is not None:
        data.run.logger.log(f"[PARAMETERS] {step} : {named_changes(changed)}", echo=False)
        store_changes(data, changed, step)


def store_changes(data: RunData, changed: Mapping[str, tuple[Any, Any]], step: float | None) -> None:
    """Store changes of hyper-parameters (name → former and new value) in the item."""
    run, item = data.run, data.item
    if run is None or item is None:
        return
    try:
        name, content = keep_changes(item, data.setup.shown_parameters(), changed, step)
    except OSError as error:
        warn(f"the changed hyper-parameters were not kept: {error.strerror or error}")
        return
    for kind in CHANGE_KINDS:
        run.file(kind, name, content)


def send_parameters(data: RunData, run: Run, name: str, content: bytes) -> None:
    """Send the parameter file and the parameters to the agent."""
    for kind in PARAMETER_KINDS:
        run.file(kind, name, content)
    mark_parameters(data, run)


def mark_parameters(data: RunData, run: Run) -> None:
    """Send the hyper-parameters to the agent."""
    run.mark("hyper_param", plain_hyper_param(data.setup.shown_parameters()))
