"""Names of the original RLA, for scripts that were written for it.

`from rla_client.compat import *` has the names of `from RLA import *`. `install()` provides modules named
`RLA`, `RLA.easy_log.logger`, …, each with the names of the original's module, implemented by rla_client. New
scripts do not need this package.
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
