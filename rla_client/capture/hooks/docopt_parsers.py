"""Hook of docopt, for the command line of the program's own usage text."""

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

_NUMBER = r"[+-]?(0|[1-9]\d{0,17})(\.\d*)?([eE][+-]?\d{1,3})?"  # `007` and `1_000` stay texts
_HOOKS = f"capture{os.sep}hooks{os.sep}"
_PASSED = (f"{_HOOKS}docopt_parsers.py", f"{_HOOKS}wrapping.py")


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch `docopt`."""
    replace(module, "docopt", followed(part, _see))


def _see(result: Any, doc: Any = None, argv: Any = None, *more: Any, **named: Any) -> None:
    del doc, more, named
    if not result or not called_by_program(1, *_PASSED):
        return
    words = sys.argv[1:] if argv is None else argv.split() if isinstance(argv, str) else argv
    names = {key: key.strip("-<>").replace("-", "_") for key in result}
    options = {key: name for key, name in names.items() if key.startswith("-")}
    positional = [name for key, name in names.items() if key not in options and result[key]]
    known = seen_parameters.names_given([str(word) for word in words], options)
    values = {names[key]: _number(value) for key, value in result.items()}
    seen_parameters.add(seen_parameters.PARSER, "docopt", values, (*known, *positional))


def _number(value: Any) -> Any:
    """The number that a text spells, or the value itself; docopt returns all values as text."""
    import re

    if not isinstance(value, str) or not re.fullmatch(_NUMBER, value):
        return value
    number = float(value) if set(value) & set(".eE") else int(value)
    return value if number in {float("inf"), float("-inf")} else number
