"""Hook of `tyro.cli`, for the configuration that it returns."""

from __future__ import annotations

import os
import sys

from . import seen_parameters
from .origin import called_by_program
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HOOKS = f"capture{os.sep}hooks{os.sep}"
_PASSED = (f"{os.sep}tyro{os.sep}_cli.py", f"{_HOOKS}tyro_configs.py", f"{_HOOKS}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch `cli`."""
    replace(module, "cli", observed(part, _see))


def _see(result: Any, *args: Any, **kwargs: Any) -> None:
    del args
    if not hasattr(result, "__dict__") and not hasattr(type(result), "__dataclass_fields__"):
        return
    if not called_by_program(1, *_PASSED):
        return
    words = kwargs.get("args")
    given = []
    for word in sys.argv[1:] if words is None else words:
        if str(word).startswith("--"):
            name = str(word)[2:].partition("=")[0].replace("-", "_")
            given.append(name if _has(result, name) else name.removeprefix("no_"))
    seen_parameters.add(seen_parameters.PARSER, "tyro", result, tuple(dict.fromkeys(given)))


def _has(found: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True
