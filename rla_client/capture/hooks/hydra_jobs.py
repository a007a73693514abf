"""Hook of Hydra's jobs, for their configuration.

Each job of a multirun becomes a run.
"""

from __future__ import annotations

from . import recorder, seen_parameters
from .state import CapturePart
from .wrapping import preceded, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch jobs."""
    replace(module, "run_job", preceded(part, _see))


def _see(task_function: Any, config: Any, *args: Any, **kwargs: Any) -> None:
    del task_function, args, kwargs
    from omegaconf import OmegaConf, open_dict

    session = recorder.opened()
    if session is not None:
        session.end_run()
    plain = OmegaConf.to_container(config, resolve=False)
    words = plain.pop("hydra", {}).get("overrides", {}).get("task", [])
    task = OmegaConf.create(plain)
    with open_dict(task):
        seen_parameters.sources[:] = [one for one in seen_parameters.sources if one.origin != "hydra"]
    names = [str(word).partition("=")[0].lstrip("+~") for word in words]
    seen_parameters.add(seen_parameters.FILES, "hydra", task, tuple(names))
