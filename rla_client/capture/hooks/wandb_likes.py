"""Hooks of libraries with the functions of wandb (trackio, swanlab)."""

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

_PASSED = (f"capture{os.sep}hooks{os.sep}wandb_likes.py", f"capture{os.sep}hooks{os.sep}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch `init` and `log`, functions of the module or methods of its runs."""

    def init(_: object, project: Any = None, *args: Any, **kwargs: Any) -> None:
        del args
        if project:
            recorder.names["project"] = str(project)
        if kwargs.get("config"):
            seen_parameters.add(seen_parameters.CONFIG, part.name, dict(kwargs["config"]))

    def log(_: object, values: Any = None, step: Any = None, *args: Any, **kwargs: Any) -> None:
        del args
        values = next(
            (one for one in (values, kwargs.get("metrics"), kwargs.get("data")) if one is not None), {}
        )
        if not (state.adapted and from_adapted_library(caller(1, *_PASSED))):
            recorder.row(part, values, step)

    replace(module, "init", observed(part, init))
    replace(module, "log", observed(part, log))
    run = getattr(module, "Run", None)
    if run is not None:
        replace(run, "log", observed(part, lambda _, __, *args, **kwargs: log(_, *args, **kwargs)))
