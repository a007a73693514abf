"""Hooks at the end of a process."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable


def at_exit(call: Callable[[], object]) -> None:
    """Register a call for the end of this process, also of a forked `multiprocessing` child (or twice)."""
    atexit.register(call)
    util, process = map(sys.modules.get, ("multiprocessing.util", "multiprocessing.process"))
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, call, exitpriority=0)
