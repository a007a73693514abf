"""The original RLA's names, for scripts that were written for it.

`from rla_client.compat import *` gives what `from RLA import *` gave. `install()` puts modules named `RLA`,
`RLA.easy_log.logger`, … into `sys.modules`; each gives the names that the original's module of that path
has, from ours. New scripts need none of it.
"""

from __future__ import annotations

import importlib
from typing import Any

from rla_client.compat.old_modules import install as install
from rla_client.compat.rla_names import NAMES, RLA_NAMES

__all__ = list(RLA_NAMES)


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any name of RLA's
    home, attribute = RLA_NAMES.get(name, ""), name
    for names in () if home else NAMES.values():  # of a module below RLA
        home, attribute = names.get(name, (home, attribute))
    if not home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), attribute)
