"""Hook of argparse, for the Namespace of the program's own parsers."""

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

_PASSED = (f"{os.sep}argparse.py", f"capture{os.sep}hooks{os.sep}argparse_parsers.py")


def hook(module: ModuleType, part: Part) -> None:
    """Watch `parse_known_args`, which all others call."""

    def make(original: Any) -> Any:
        def parse_known_args(
            self: Any, args: Any = None, namespace: Any = None, *more: Any, **named: Any
        ) -> Any:
            result = original(self, args, namespace, *more, **named)
            if part.on and not thread.inside:
                try:
                    if called_by_program(1, *_PASSED):
                        _see(self, sys.argv[1:] if args is None else args, result[0])
                except Exception as error:  # noqa: BLE001 - ours is no fault of the program
                    part.failed(error)
            return result

        return parse_known_args

    replace(module.ArgumentParser, "parse_known_args", make)


def _see(parser: Any, words: Any, namespace: Any) -> None:
    if not vars(namespace):
        return
    options: dict[str, str] = {}
    positional = []
    for action in parser._actions:  # noqa: SLF001 - there is no other list
        options |= dict.fromkeys(action.option_strings, action.dest)
        if not action.option_strings and getattr(namespace, action.dest, None) is not None:
            positional.append(action.dest)
    known = gathered.names_given([str(word) for word in words], options)
    gathered.add(gathered.PARSER, "argparse", namespace, (*known, *positional))
