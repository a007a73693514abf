"""The run of a model."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from contextlib import nullcontext

from rla_client import logger
from rla_client.adapter import join_or_open, open_for_adapter
from rla_client.contract.errors import extra
from rla_client.integrations.sb3.model_parameters import model_parameters
from rla_client.integrations.sb3.output_format import RLAOutputFormat
from rla_client.integrations.sb3.run_owners import models_by_run, runs_by_model
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.configure import RUN_ID_VARIABLE
from rla_client.run_handle import OpenRun
from rla_client.stream import run_scope as scopes

with extra("sb3", "rla_client.integrations.sb3"):
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.utils import configure_logger


_opened = 0  # runs of models so far


@scopes.opening()
def configure_sb3(
    model: BaseAlgorithm, task_table_name: str | None = None, *, track: Iterable[str] = ()
) -> ExpManager:
    """Make an SB3 model log into the open run, or into a new run.

    Unless the script has opened a run, each model gets a run of its own, which stays open as long as the
    model exists.

    Args:
        model: an algorithm of SB3 or sb3-contrib. Its own logger keeps printing and writing.
        task_table_name: table of a new run; by default `<environment>-<algorithm>`.
        track: hyper-parameters of the model that become part of a new run's index, e.g. `["seed"]`.

    Returns:
        `exp_manager` of the run.

    Raises:
        ArgumentError: see `rla_client.init`.
    """
    held = runs_by_model.get(model)
    with nullcontext() if held is None or held.run is None else held.active():
        return _configure(model, task_table_name, track)


def _configure(model: BaseAlgorithm, task_table_name: str | None, track: Iterable[str]) -> ExpManager:
    global _opened  # noqa: PLW0603 - of the process
    parameters = model_parameters(model)
    algorithm = type(model).__name__
    table = task_table_name or f"{parameters['env_id']}-{algorithm}".replace("/", "-")
    run = exp_manager.run
    owner = None if run is None else models_by_run.get(run)
    if owner is not None and owner() is not model:  # the open run belongs to another model, perhaps deleted
        opened: OpenRun | None = open_for_adapter(table, parameters, track, run_id=_own_run_id())
    else:
        if logger.get_current().folder is not None:  # hyper-parameters of the script stay
            known = exp_manager.hyper_param
            parameters = {name: value for name, value in parameters.items() if name not in known}
        opened = join_or_open(table, parameters, track, run_id=_own_run_id())
    if opened is not None:
        runs_by_model[model] = opened
        if opened.run is not None:
            models_by_run[opened.run] = weakref.ref(model)
        _opened += 1
    own = getattr(model, "_logger", None)
    if own is None:
        own = configure_logger(model.verbose, model.tensorboard_log, algorithm)  # as `learn` would
    ours = next((each for each in own.output_formats if isinstance(each, RLAOutputFormat)), None)
    if ours is None:
        ours = RLAOutputFormat()
        own.output_formats.append(ours)
    model.set_logger(own)  # `learn` keeps this logger
    return ours.join()


def _own_run_id() -> str | None:
    """The run id of a further model: RLA_RUN_ID with a number; None for the first model."""
    name, number = os.environ.get(RUN_ID_VARIABLE), _opened + 1
    return f"{name}-{number}" if name and number > 1 else None
