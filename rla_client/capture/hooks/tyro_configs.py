"""Hook of `tyro.cli`, for hyper-parameters."""

from __future__ import annotations

import os
import sys

from . import gathered
from .origin import called_by_program
from .state import Part, thread
from .wrapping import replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_PASSED = (f"{os.sep}tyro{os.sep}_cli.py", f"capture{os.sep}hooks{os.sep}tyro_configs.py")


def hook(module: ModuleType, part: Part) -> None:
    """Watch `cli`."""

    def make(original: Any) -> Any:
        def cli(*args: Any, **kwargs: Any) -> Any:
            former = thread.inside
            thread.inside = True  # the argparse in it is tyro's
            try:
                result = original(*args, **kwargs)
            finally:
                thread.inside = former
            if part.on and not former:
                try:
                    if called_by_program(1, *_PASSED):
                        _see(result, kwargs.get("args"))
                except Exception as error:  # noqa: BLE001 - ours is no fault of the program
                    part.failed(error)
            return result

        return cli

    replace(module, "cli", make)


def _see(result: Any, words: Any) -> None:
    if not hasattr(result, "__dict__") and not hasattr(type(result), "__dataclass_fields__"):
        return
    given = []
    for word in sys.argv[1:] if words is None else words:
        if str(word).startswith("--"):
            name = str(word)[2:].partition("=")[0].replace("-", "_")
            given.append(name if _has(result, name) else name.removeprefix("no_"))
    gathered.add(gathered.PARSER, "tyro", result, tuple(dict.fromkeys(given)))


def _has(found: Any, path: str) -> bool:
    for name in path.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True
