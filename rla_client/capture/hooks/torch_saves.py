"""Hook of torch.save, for files that the program's own code saves."""

from __future__ import annotations

import os

from . import recorder, state
from .origin import called_by_program
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

CHECKPOINTS = "checkpoints"
_PASSED = (f"capture{os.sep}hooks{os.sep}torch_saves.py", f"capture{os.sep}hooks{os.sep}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch torch.save."""

    def see(_: object, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        del obj, args, kwargs
        session = recorder.opened()
        if session is not None and isinstance(f, str | os.PathLike) and called_by_program(1, *_PASSED):
            session.saved(part, os.path.abspath(f), copied=CHECKPOINTS in state.chosen)

    replace(module, "save", observed(part, see))
