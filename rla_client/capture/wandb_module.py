"""Stand-in module for a wandb that is not installed."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rla_client.contract.capture.notes import RUN, add_note
from rla_client.contract.capture.parts import TABLE_VARIABLE
from rla_client.manager import exp_manager
from rla_client.run.record.run_logger import Logger

if TYPE_CHECKING:
    from rla_client.integrations.wandb.run_object import Run


def replacement(adopt: Callable[[], object], takes_tensorboard: Callable[[], bool]) -> ModuleType:
    """Our wandb module, set up for a capture: it prints nothing and uses the table that the user chose.

    Args:
        adopt: called after a run was opened.
        takes_tensorboard: whether SummaryWriters are captured.
    """
    from rla_client.integrations import wandb  # noqa: PLC0415 - imports numpy

    Logger.silent = True
    logging.getLogger("rla_client").addHandler(logging.NullHandler())
    logging.getLogger("rla_client").propagate = False
    original = wandb.init

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> Run:  # noqa: ANN401 - wandb's
        table = os.environ.get(TABLE_VARIABLE)
        if table:
            kwargs["project"] = table
        former = wandb.run
        synced = takes_tensorboard() and bool(kwargs.pop("sync_tensorboard", False))
        run = original(*args, **kwargs)
        if run is not former:
            adopt()
        if synced:  # `log` without a step uses their steps; their values come through the hooks, as doubles
            run.synced = True
        add_note(RUN, exp_manager.log_dir or "")
        return run

    wandb.init = init
    return wandb
