"""Hooks of gymnasium or gym, for the names of environments."""

from __future__ import annotations

from . import seen_parameters
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_made: list[str] = []
MAX_MADE = 20


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the functions that make environments."""
    replace(module, "make", observed(part, _see))
    replace(module, "make_vec", observed(part, _see))


def _see(_: object, id: Any = None, *args: Any, **kwargs: Any) -> None:  # noqa: A002 - gymnasium's
    del args, kwargs
    name = str(getattr(id, "id", id))
    if name in _made or len(_made) >= MAX_MADE:
        return
    _made.append(name)
    seen_parameters.sources[:] = [one for one in seen_parameters.sources if one.origin != "gymnasium"]
    seen_parameters.add(
        seen_parameters.FILES, "gymnasium", {"env_id": _made[0] if len(_made) == 1 else list(_made)}
    )
