"""Hooks of an installed wandb.

Its runs go on as ever; what they are given is given to the captured run as well.
"""

from __future__ import annotations

import os

from . import gathered, recorder, state
from .origin import caller
from .state import Part, thread
from .wrapping import from_adapted_library, observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PASSED = (f"capture{os.sep}hooks{os.sep}wandb_runs.py", f"capture{os.sep}hooks{os.sep}wrapping.py")


def hook(module: ModuleType, part: Part) -> None:
    """Watch where runs are made, and their class."""
    if module.__name__.endswith("wandb_init"):
        replace(module, "init", observed(part, _made))
        return
    kind = module.Run
    replace(kind, "log", _log_maker(part))
    replace(kind, "define_metric", observed(part, _define_metric))
    replace(kind, "_finish" if hasattr(kind, "_finish") else "finish", _finish_maker(part))


def _made(run: Any, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    if not getattr(run, "disabled", False) and not (
        state.adapted and from_adapted_library(caller(1, *_PASSED))
    ):
        session = recorder.opened()
        if session is not None:
            session.wandb.begin(run)
        recorder.names["project"] = str(getattr(run, "project", "") or "")
        gathered.put(gathered.CONFIG, "wandb", run.config)


def _log_maker(part: Part) -> Any:
    def make(original: Any) -> Any:
        def log(self: Any, data: Any, step: Any = None, commit: Any = None, *args: Any, **kwargs: Any) -> Any:
            if thread.inside or not part.on:
                return original(self, data, step, commit, *args, **kwargs)
            before = self.step if step is None else step
            thread.inside = True
            try:
                result = original(self, data, step, commit, *args, **kwargs)
                try:
                    if not (state.adapted and from_adapted_library(caller(1, *_PASSED))):
                        found = recorder.session()
                        if found is not None:
                            found.wandb.log(
                                part, self, data, before, step is None if commit is None else commit
                            )
                except Exception as error:  # noqa: BLE001 - ours is no fault of the program
                    part.failed(error)
            finally:
                thread.inside = False
            return result

        return log

    return make


def _define_metric(_: object, run: Any, *args: Any, **kwargs: Any) -> None:
    recorder.wandb_metrics.append((run, args, kwargs))
    session = recorder.opened()
    if session is not None:
        session.wandb.define(recorder.wandb_metrics)


def _finish_maker(part: Part) -> Any:
    def make(original: Any) -> Any:
        def finish(self: Any, *args: Any, **kwargs: Any) -> Any:
            session = recorder.opened()
            if session is not None and part.on and not thread.inside:
                thread.inside = True
                try:
                    session.wandb.finish(self)
                except Exception as error:  # noqa: BLE001 - ours is no fault of the program
                    part.failed(error)
                finally:
                    thread.inside = False
            return original(self, *args, **kwargs)

        return finish

    return make
