"""Hook of absl's parser, for flags that the program's own files define."""

from __future__ import annotations

import sys

from . import seen_parameters
from .origin import is_own
from .state import CapturePart
from .wrapping import observed, replace

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any


def hook(module: ModuleType, part: CapturePart) -> None:
    """Watch the parsing of flags."""
    replace(module.FlagValues, "__call__", observed(part, _see))


def _see(_: object, flags: Any, *args: Any) -> None:
    del args
    values, given = {}, []
    for name, found in flags.flags_by_module_dict().items():
        file = sys.argv[0] if name == sys.argv[0] else getattr(sys.modules.get(name), "__file__", None)
        if file is None or not is_own(file):
            continue
        for flag in found:
            values[flag.name] = flag.value
            if flag.present:
                given.append(flag.name)
    if values:
        seen_parameters.add(seen_parameters.PARSER, "absl", values, tuple(given))
