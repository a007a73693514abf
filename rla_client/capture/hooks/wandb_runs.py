"""wandb where it is installed: what its runs are given is given to the captured run as well."""

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
_LIBRARY = f"{os.sep}wandb{os.sep}"


def hook(module: ModuleType, part: Part) -> None:
    """Watch the class of runs."""
    kind = module.Run
    replace(kind, "log", _log_maker(part))
    replace(kind, "define_metric", observed(part, _define_metric))
    replace(kind, "finish", _finish_maker(part))


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
                        gathered.add(gathered.CONFIG, "wandb", self.config)
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
