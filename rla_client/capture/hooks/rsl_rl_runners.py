"""Hook of rsl_rl's runner, for its configuration.

The runner's metrics come through its SummaryWriter.
"""

from __future__ import annotations

from . import seen_parameters
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the runner."""

    def see(_: object, runner: Any, env: Any, train_cfg: Any, *args: Any, **kwargs: Any) -> None:
        del runner, env, args, kwargs
        seen_parameters.add(seen_parameters.FILES, "rsl_rl", dict(train_cfg))

    replace(module.OnPolicyRunner, "__init__", observed(part, see))
