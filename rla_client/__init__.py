"""rla_client: the thin client of rla-agent, for reinforcement-learning experiments.

    from rla_client import exp_manager, logger, time_step_holder

`dir(rla_client)` has the names for new scripts. All others that polixir/RLAssistant offers are found, too:
`from rla_client import NAME`, or by `rla_client.compat`. Each name is imported at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rla_client.contract import __version__ as __version__
from rla_client.stream.clock import time_step_holder

if TYPE_CHECKING:  # what type checkers see of the names below
    from rla_client import logger
    from rla_client.init_run import init
    from rla_client.integrations.tensorboard import SummaryWriter
    from rla_client.joined_run import join, run_address
    from rla_client.launcher import wrap_experiment
    from rla_client.loader import ExperimentLoader as ExperimentLoader
    from rla_client.log_row import log, log_samples
    from rla_client.manager import exp_manager
    from rla_client.media.figure_recorder import MatplotlibRecorder as MatplotlibRecorder
    from rla_client.media.image_recorder import ImgRecorder as ImgRecorder
    from rla_client.media.logged_media.audio import Audio
    from rla_client.media.logged_media.confusion_matrix import ConfusionMatrix
    from rla_client.media.logged_media.histogram import Histogram
    from rla_client.media.logged_media.html import Html
    from rla_client.media.logged_media.image import Image
    from rla_client.media.logged_media.point_cloud import PointCloud
    from rla_client.media.logged_media.table import Table
    from rla_client.media.logged_media.video import Video
    from rla_client.media.video_recorder import VideoRecorder as VideoRecorder
    from rla_client.plot import plot_func as plot_func
    from rla_client.run.record.time_tracker import time_tracker as time_tracker

_HOMES = {
    "Audio": "rla_client.media.logged_media.audio",
    "ConfusionMatrix": "rla_client.media.logged_media.confusion_matrix",
    "ExperimentLoader": "rla_client.loader",
    "Histogram": "rla_client.media.logged_media.histogram",
    "Html": "rla_client.media.logged_media.html",
    "Image": "rla_client.media.logged_media.image",
    "ImgRecorder": "rla_client.media.image_recorder",
    "MatplotlibRecorder": "rla_client.media.figure_recorder",
    "PointCloud": "rla_client.media.logged_media.point_cloud",
    "SummaryWriter": "rla_client.integrations.tensorboard",
    "Table": "rla_client.media.logged_media.table",
    "Video": "rla_client.media.logged_media.video",
    "VideoRecorder": "rla_client.media.video_recorder",
    "exp_manager": "rla_client.manager",
    "init": "rla_client.init_run",
    "join": "rla_client.joined_run",
    "log": "rla_client.log_row",
    "log_samples": "rla_client.log_row",
    "plot_func": "rla_client.plot",
    "run_address": "rla_client.joined_run",
    "time_tracker": "rla_client.run.record.time_tracker",
    "wrap_experiment": "rla_client.launcher",
}

__all__ = [  # none of it loads matplotlib, numpy or torch
    "Audio",
    "ConfusionMatrix",
    "Histogram",
    "Html",
    "Image",
    "PointCloud",
    "SummaryWriter",
    "Table",
    "Video",
    "exp_manager",
    "init",
    "join",
    "log",
    "log_samples",
    "logger",
    "run_address",
    "time_step_holder",
    "wrap_experiment",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    if name == "logger":  # a module itself
        value: Any = importlib.import_module("rla_client.logger")
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        value = _of_rla(name)
    globals()[name] = value
    return value


def _of_rla(name: str) -> Any:  # noqa: ANN401 - any public name
    compat = None if name.startswith("_") else importlib.import_module("rla_client.compat")
    if compat is None or name not in compat.RLA_NAMES:
        raise AttributeError(f"module 'rla_client' has no attribute {name!r}")
    return getattr(compat, name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
