"""Hook of argparse, for the Namespace of the program's own parsers."""

from __future__ import annotations

import os
import sys

from . import seen_parameters
from .origin import called_by_program
from .state import CapturePart
from .wrapping import followed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_HOOKS = f"capture{os.sep}hooks{os.sep}"
_PASSED = (f"{os.sep}argparse.py", f"{_HOOKS}argparse_parsers.py", f"{_HOOKS}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch `parse_known_args`, which the other parsing methods call."""
    replace(module.ArgumentParser, "parse_known_args", followed(part, _see))


def _see(result: Any, parser: Any, args: Any = None, *more: Any, **named: Any) -> None:
    del more, named
    namespace = result[0]
    if not vars(namespace) or not called_by_program(1, *_PASSED):
        return
    words = sys.argv[1:] if args is None else args
    options: dict[str, str] = {}
    positional = []
    for action in parser._actions:  # noqa: SLF001 - there is no public list
        options |= dict.fromkeys(action.option_strings, action.dest)
        if not action.option_strings and getattr(namespace, action.dest, None) is not None:
            positional.append(action.dest)
    known = seen_parameters.names_given([str(word) for word in words], options)
    seen_parameters.add(seen_parameters.PARSER, "argparse", namespace, (*known, *positional))
