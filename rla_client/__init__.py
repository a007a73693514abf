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

_LAZY = {
    "exp_manager": ("rla_client.manager", "exp_manager"),
    "init": ("rla_client.shortcuts", "init"),
    "log": ("rla_client.shortcuts", "log"),
    "logger": ("rla_client.logger", None),
    "time_tracker": ("rla_client.run.trackers", "time_tracker"),
    "plot_func": ("rla_client.plot", "plot_func"),
    "plot_saved_images": ("rla_client.plot", "plot_saved_images"),
    "MatplotlibRecorder": ("rla_client.media.recorders", "MatplotlibRecorder"),
    "ImgRecorder": ("rla_client.media.recorders", "ImgRecorder"),
    "VideoRecorder": ("rla_client.media.recorders", "VideoRecorder"),
    "simple_plot": ("rla_client.media.recorders", "simple_plot"),
    "simple_hist": ("rla_client.media.recorders", "simple_hist"),
    "simple_scatter": ("rla_client.media.recorders", "simple_scatter"),
    "ExperimentLoader": ("rla_client.loader", "ExperimentLoader"),
    "fork_log_file_fn": ("rla_client.loader", "fork_log_file_fn"),
    "update_hyper_parameters_fn": ("rla_client.loader", "update_hyper_parameters_fn"),
    "experiment_data_query": ("rla_client.database", "experiment_data_query"),
    "single_experiment_query": ("rla_client.database", "single_experiment_query"),
    "DeleteLogTool": ("rla_client.database", "DeleteLogTool"),
    "ArchiveLogTool": ("rla_client.database", "ArchiveLogTool"),
    "MigrateLogTool": ("rla_client.database", "MigrateLogTool"),
    "ViewLogTool": ("rla_client.database", "ViewLogTool"),
    "PrettyPlotterTool": ("rla_client.database", "PrettyPlotterTool"),
    "Filter": ("rla_client.database", "Filter"),
    "SummaryWriter": ("rla_client.integrations.tensorboard", "SummaryWriter"),
    "wrap_experiment": ("rla_client.launcher", "wrap_experiment"),
    "DEFAULT_X_NAME": ("rla_client.compat", "DEFAULT_X_NAME"),
    "DEFAULT_TIMESTAMP": ("rla_client.compat", "DEFAULT_TIMESTAMP"),
    "FRAMEWORK": ("rla_client.compat", "FRAMEWORK"),
    "FTP_PROTOCOL_NAME": ("rla_client.compat", "FTP_PROTOCOL_NAME"),
    "LOG_NAME_FORMAT_VERSION": ("rla_client.compat", "LOG_NAME_FORMAT_VERSION"),
    "PLATFORM_TYPE": ("rla_client.compat", "PLATFORM_TYPE"),
    "LoadTesterMode": ("rla_client.compat", "LoadTesterMode"),
    "LogDataType": ("rla_client.compat", "LogDataType"),
}

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
    from rla_client.media.recorders import simple_hist as simple_hist
    from rla_client.media.recorders import simple_plot as simple_plot
    from rla_client.media.recorders import simple_scatter as simple_scatter
    from rla_client.plot import plot_func
    from rla_client.plot import plot_saved_images as plot_saved_images
    from rla_client.run.trackers import time_tracker
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
    try:
        module_name, attribute = _LAZY[name]
    except KeyError:
        message = f"module 'rla_client' has no attribute {name!r}"
        raise AttributeError(message) from None
    module = importlib.import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
