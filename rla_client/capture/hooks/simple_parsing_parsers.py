"""Hook of simple_parsing, for the dataclasses that its parsers fill."""

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
_PASSED = (
    f"{os.sep}argparse.py", f"simple_parsing{os.sep}parsing.py", f"{_HOOKS}wrapping.py",
    f"{_HOOKS}argparse_parsers.py", f"{_HOOKS}simple_parsing_parsers.py",
)  # fmt: skip


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch parsers."""

    def see(result: Any, parser: Any, args: Any = None, *more: Any, **kwargs: Any) -> None:
        del parser, more, kwargs
        if not called_by_program(1, *_PASSED):
            return
        values = vars(result[0])
        configs = [one for one in values.values() if hasattr(type(one), "__dataclass_fields__")]
        found = configs[0] if len(configs) == 1 == len(values) else result[0]
        words = sys.argv[1:] if args is None else args
        given = [str(word)[2:].partition("=")[0] for word in words if str(word).startswith("--")]
        seen_parameters.add(seen_parameters.PARSER, "simple_parsing", found, tuple(given))

    replace(module.ArgumentParser, "parse_known_args", observed(part, see))
