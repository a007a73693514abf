"""Modules of other libraries that this process has loaded."""

from __future__ import annotations

import sys
from typing import Any


def loaded(name: str) -> Any:  # noqa: ANN401 - a module of any library
    """The module, if it was imported completely; None while another thread is importing it.

    Nothing is imported: where a library is not loaded there are no objects of its types.
    """
    module = sys.modules.get(name)
    # as Python's own import does before it waits for the other thread
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module
