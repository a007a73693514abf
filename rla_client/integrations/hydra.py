"""Hydra: a run for each job.

A job's configuration becomes hyper-parameters; overrides on the command line become part of the run's index.

    @hydra.main(config_path="conf", config_name="config", version_base=None)
    def train(cfg):
        open_run(cfg)  # python train.py -m optimizer.lr=0.1,0.01 → …&optimizer.lr=0.1, …&optimizer.lr=0.01

or, without a change of the script, in Hydra's configuration:

    hydra.callbacks.rla._target_: rla_client.integrations.hydra.RLACallback

An OmegaConf that is not Hydra's is a `config` like any other: `rla_client.init("table", config=cfg)`.
"""

from __future__ import annotations

import inspect
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus, run_job
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from rla_client.init_run import init
from rla_client.manager import ExpManager, exp_manager
from rla_client.run.failure import ending
from rla_client.run.parameters.config_objects import to_parameters

__all__ = ["RLACallback", "open_run"]


def open_run(cfg: DictConfig, task_table_name: str | None = None, **further: Any) -> ExpManager:
    """Open a run for a job of Hydra; it ends with the job, as `failed` if the job raised.

    Hyper-parameters are the nested configuration (named with dots in `rla ls` and `track`, as in Hydra) and,
    below `hydra`, the chosen config groups, the overrides and the job's folder.

    Args:
        cfg: the job's configuration.
        task_table_name: by default the job's name, which is that of the script.
        **further: arguments of `rla_client.init`.

    Returns:
        The result of `rla_client.init`.
    """
    job = HydraConfig.get()
    overrides = [str(override) for override in job.overrides.task]
    groups = {name: choice for name, choice in job.runtime.choices.items() if not name.startswith("hydra")}
    about = {**groups, "overrides": overrides, "output_dir": job.runtime.output_dir}
    further.setdefault("track", _tracked(cfg, overrides, groups))
    if exp_manager.run is not None:
        exp_manager.close()
    table = (task_table_name or job.job.name).replace("/", "-")
    ending_of_job = _end_with_job()
    run = init(table, config={**to_parameters(cfg), "hydra": about}, **further)
    if ending_of_job is not None:
        ending_of_job.run = run
    return run


def _tracked(cfg: DictConfig, overrides: list[str], groups: dict[str, str]) -> list[str]:
    """The names of overridden values, and of overridden config groups below `hydra`."""
    found = OverridesParser.create().parse_overrides(overrides)
    names = [override.key_or_group for override in found if not override.is_delete()]
    values = [name for name in names if name not in groups and OmegaConf.select(cfg, name) is not None]
    return values + [f"hydra.{name}" for name in names if name in groups]


class _Ending(Callback):
    """Ends the run of a job."""

    run: ExpManager = exp_manager

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
        """End the run, as failed if the job raised."""
        del config
        failed = job_return.status == JobStatus.FAILED
        self.run.close(*(ending(job_return._return_value) if failed else ("finished", "")))  # noqa: SLF001


class RLACallback(_Ending):
    """Opens a run for each job; the run fails if the job raises."""

    def __init__(self, task_table_name: str | None = None) -> None:
        self._table = task_table_name

    def on_job_start(self, config: DictConfig, **_: Any) -> None:
        """Open a run."""
        cfg = OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])
        open_run(cfg, self._table)


def _end_with_job() -> _Ending | None:
    """Add a callback to the job in progress that ends the run.

    Hydra catches the exceptions of a job, so that no hook of Python sees them, and creates its callbacks
    before the job starts.
    """
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not run_job.__code__:
        frame = frame.f_back
    if frame is None:
        return None
    callbacks = frame.f_locals["hydra_context"].callbacks.callbacks
    if not any(isinstance(one, _Ending) for one in callbacks):
        callbacks.append(_Ending())
    return next(one for one in callbacks if isinstance(one, _Ending))
