"""Thread that runs experiments.

The process's logger has one current run, so two threads that run experiments at the same time would
silently mix their rows. The second thread gets an error. Nested experiments in one thread are allowed, and
so are processes: a forked child continues in its only thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rla_client.contract.errors import LaunchError
from rla_client.contract.process.fork_hooks import at_fork


class _Owner:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread = 0
        self.depth = 0

    def after_fork_in_child(self) -> None:
        self.lock = threading.Lock()
        self.thread = threading.get_ident()


_owner = _Owner()
at_fork(_owner)


@contextmanager
def this_thread(name: str) -> Iterator[None]:
    """Reserve experiments for this thread during the block.

    Raises:
        LaunchError: another thread is inside an experiment.
    """
    me = threading.get_ident()
    with _owner.lock:
        if _owner.depth and _owner.thread != me:
            raise LaunchError(
                f"{name} cannot run now: another thread of this process is inside of an experiment, and "
                "their rows would be mixed. Run experiments one after the other, or in processes of their own"
            )
        _owner.thread = me
        _owner.depth += 1
    try:
        yield
    finally:
        with _owner.lock:
            _owner.depth -= 1
