"""Hooks of Accelerate's trackers."""

from __future__ import annotations

from ...contract.capture.wandb_distribution import is_replaced
from . import recorder, seen_parameters, state
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the Accelerator."""
    state.adapted.add("accelerate")

    def begin(
        _: object, accelerator: Any, project_name: Any = None, config: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        del accelerator, args, kwargs
        if project_name:
            recorder.names["project"] = str(project_name)
        if config:
            seen_parameters.add(seen_parameters.CONFIG, "accelerate", dict(config))

    def log(_: object, accelerator: Any, values: Any, step: Any = None, *args: Any, **kwargs: Any) -> None:
        del args, kwargs
        if accelerator.is_main_process and not (
            is_replaced() and any(tracker.name == "wandb" for tracker in accelerator.trackers)
        ):
            recorder.row(part, values, step)

    replace(module.Accelerator, "init_trackers", observed(part, begin))
    replace(module.Accelerator, "log", observed(part, log))
