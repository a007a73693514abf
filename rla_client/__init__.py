"""rla_client: the thin client of rla-agent, for reinforcement-learning experiments.

    from rla_client import exp_manager, logger, time_step_holder

Names are those of polixir/RLAssistant. Only what every training script needs is imported here;
the rest comes at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rla_client.contract import __version__ as __version__
from rla_client.contract.layout import (
    ARCHIVE_TESTER,
    ARCHIVED_TABLE,
    CHECKPOINT,
    CODE,
    DEFAULT_LOG_TYPES,
    HYPARAM_FILE_NAME,
    HYPARAMETER,
    LOG,
    OTHER_RESULTS,
    TMP_DATA,
)
from rla_client.stream.clock import time_step_holder

default_log_types = list(DEFAULT_LOG_TYPES)

_MODULES = {  # where the other public names are
    "rla_client.manager": ("exp_manager",),
    "rla_client.shortcuts": ("init", "log"),
    "rla_client.run.record.time_tracker": ("time_tracker",),
    "rla_client.plot": ("plot_func", "plot_saved_images"),
    "rla_client.media.recorders": ("MatplotlibRecorder", "ImgRecorder", "VideoRecorder"),
    "rla_client.media.simple_plots": ("simple_plot", "simple_hist", "simple_scatter"),
    "rla_client.loader": ("ExperimentLoader", "fork_log_file_fn", "update_hyper_parameters_fn"),
    "rla_client.database": (
        "experiment_data_query", "single_experiment_query", "DeleteLogTool", "ArchiveLogTool",
        "MigrateLogTool", "ViewLogTool", "PrettyPlotterTool", "Filter",
    ),
    "rla_client.integrations.tensorboard": ("SummaryWriter",),
    "rla_client.launcher": ("wrap_experiment",),
    "rla_client.compat": (
        "DEFAULT_X_NAME", "DEFAULT_TIMESTAMP", "FRAMEWORK", "FTP_PROTOCOL_NAME", "LOG_NAME_FORMAT_VERSION",
        "PLATFORM_TYPE", "LoadTesterMode", "LogDataType",
    ),
}  # fmt: skip
_LAZY = {name: module for module, names in _MODULES.items() for name in names} | {"logger": ""}

if TYPE_CHECKING:  # what type checkers see of the names above
    from rla_client import logger
    from rla_client.compat import (
        DEFAULT_TIMESTAMP,
        DEFAULT_X_NAME,
        FRAMEWORK,
        FTP_PROTOCOL_NAME,
        LOG_NAME_FORMAT_VERSION,
        PLATFORM_TYPE,
        LoadTesterMode,
        LogDataType,
    )
    from rla_client.database import ArchiveLogTool as ArchiveLogTool
    from rla_client.database import DeleteLogTool as DeleteLogTool
    from rla_client.database import Filter as Filter
    from rla_client.database import MigrateLogTool as MigrateLogTool
    from rla_client.database import PrettyPlotterTool as PrettyPlotterTool
    from rla_client.database import ViewLogTool as ViewLogTool
    from rla_client.database import experiment_data_query, single_experiment_query
    from rla_client.integrations.tensorboard import SummaryWriter as SummaryWriter
    from rla_client.launcher import wrap_experiment as wrap_experiment
    from rla_client.loader import ExperimentLoader, fork_log_file_fn, update_hyper_parameters_fn
    from rla_client.manager import exp_manager
    from rla_client.media.recorders import ImgRecorder, MatplotlibRecorder
    from rla_client.media.recorders import VideoRecorder as VideoRecorder
    from rla_client.media.simple_plots import simple_hist as simple_hist
    from rla_client.media.simple_plots import simple_plot as simple_plot
    from rla_client.media.simple_plots import simple_scatter as simple_scatter
    from rla_client.plot import plot_func
    from rla_client.plot import plot_saved_images as plot_saved_images
    from rla_client.run.record.time_tracker import time_tracker
    from rla_client.shortcuts import init as init
    from rla_client.shortcuts import log as log

__all__ = [  # what RLA gives by `from RLA import *`; none of it loads matplotlib, numpy or torch
    "ARCHIVED_TABLE",
    "ARCHIVE_TESTER",
    "CHECKPOINT",
    "CODE",
    "DEFAULT_LOG_TYPES",
    "DEFAULT_TIMESTAMP",
    "DEFAULT_X_NAME",
    "FRAMEWORK",
    "FTP_PROTOCOL_NAME",
    "HYPARAMETER",
    "HYPARAM_FILE_NAME",
    "LOG",
    "LOG_NAME_FORMAT_VERSION",
    "OTHER_RESULTS",
    "PLATFORM_TYPE",
    "TMP_DATA",
    "ExperimentLoader",
    "ImgRecorder",
    "LoadTesterMode",
    "LogDataType",
    "MatplotlibRecorder",
    "default_log_types",
    "exp_manager",
    "experiment_data_query",
    "fork_log_file_fn",
    "logger",
    "plot_func",
    "single_experiment_query",
    "time_step_holder",
    "time_tracker",
    "update_hyper_parameters_fn",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name not in _LAZY:
        raise AttributeError(f"module 'rla_client' has no attribute {name!r}")
    if name == "logger":  # a module itself
        value: Any = importlib.import_module("rla_client.logger")
    else:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
