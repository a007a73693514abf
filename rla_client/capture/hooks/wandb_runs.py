"""Hooks of an installed wandb.

wandb's runs are unchanged; their values also go to the captured run.
"""

from __future__ import annotations

import os

from . import recorder, seen_parameters, state
from .origin import caller
from .state import CapturePart
from .wrapping import from_adapted_library, observed, preceded, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PASSED = (f"capture{os.sep}hooks{os.sep}wandb_runs.py", f"capture{os.sep}hooks{os.sep}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch `wandb.init` and the class of runs."""
    if module.__name__.endswith("wandb_init"):
        replace(module, "init", observed(part, _made))
        return
    kind = module.Run

    def log(
        before: Any, run: Any, data: Any, step: Any = None, commit: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        del args, kwargs
        if state.adapted and from_adapted_library(caller(1, *_PASSED)):
            return
        found = recorder.session()
        if found is not None:
            found.wandb.log(part, run, data, before, step is None if commit is None else commit)

    replace(kind, "log", observed(part, log, _step_before))
    replace(kind, "define_metric", observed(part, _define_metric))
    replace(kind, "_finish" if hasattr(kind, "_finish") else "finish", preceded(part, _finish))


def _made(run: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    if not getattr(run, "disabled", False) and not (
        state.adapted and from_adapted_library(caller(1, *_PASSED))
    ):
        session = recorder.opened()
        if session is not None:
            session.wandb.begin(run)
        recorder.names["project"] = str(getattr(run, "project", "") or "")
        seen_parameters.put(seen_parameters.CONFIG, "wandb", run.config)


def _step_before(run: Any, data: Any = None, step: Any = None, *args: Any, **kwargs: Any) -> Any:
    del data, args, kwargs
    return run.step if step is None else step


def _define_metric(_: object, run: Any, *args: Any, **kwargs: Any) -> None:
    recorder.wandb_metrics.append((run, args, kwargs))
    session = recorder.opened()
    if session is not None:
        session.wandb.define(recorder.wandb_metrics)


def _finish(run: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    session = recorder.opened()
    if session is not None:
        session.wandb.finish(run)
