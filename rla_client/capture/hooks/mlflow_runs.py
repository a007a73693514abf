"""Hooks of mlflow's fluent functions."""

from __future__ import annotations

import os

from . import recorder, seen_parameters, state
from .origin import caller
from .state import CapturePart
from .wrapping import from_adapted_library, observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PASSED = (f"capture{os.sep}hooks{os.sep}mlflow_runs.py", f"capture{os.sep}hooks{os.sep}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the functions that scripts call."""

    def metric(_: object, key: str, value: Any, step: Any = None, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if not _adapted():
            recorder.scalar(part, key, value, step, None)

    def metrics(_: object, metrics: Any, step: Any = None, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if not _adapted():
            recorder.row(part, metrics, step)

    def param(_: object, key: str, value: Any, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        params(_, {key: value})

    def params(_: object, params: Any, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if not _adapted():
            seen_parameters.add(seen_parameters.CONFIG, "mlflow", dict(params))

    def experiment(_: object, experiment_name: Any = None, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if experiment_name:
            recorder.names["project"] = str(experiment_name)

    replace(module, "log_metric", observed(part, metric))
    replace(module, "log_metrics", observed(part, metrics))
    replace(module, "log_param", observed(part, param))
    replace(module, "log_params", observed(part, params))
    replace(module, "set_experiment", observed(part, experiment))


def _adapted() -> bool:
    return bool(state.adapted) and from_adapted_library(caller(2, *_PASSED))
