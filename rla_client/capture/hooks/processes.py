"""Processes that may open a run.

A process that was started as a program may open a run. A worker process of another one (multiprocessing, a
fork, Ray, joblib) joins the run of that process, or its values are dropped.
"""

from __future__ import annotations

import atexit
import os
import sys

from . import state

TYPE_CHECKING = False  # `typing` takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Callable

_WORKER_PROGRAMS = ("default_worker.py", "setup_worker.py")  # of Ray


def is_worker() -> bool:
    """Whether this process works for another one."""
    if os.getpid() != state.loaded_pid:
        return True  # a fork; `loaded_pid` is that of its parent
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        return True
    words = getattr(sys, "orig_argv", sys.argv)
    if any(word.endswith(_WORKER_PROGRAMS) and "ray" in word for word in words[:4]):
        return True
    return any(
        "--multiprocessing-fork" in word or "loky.backend" in word or word == "-f --f" for word in words
    )


def at_exit(call: Callable[[], object]) -> None:
    """Call a function at the end of this process; children of multiprocessing ignore atexit."""
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, call, exitpriority=-10)
    atexit.register(call)
