"""Hooks at the fork of a process.

Only the forking thread continues in a child. A lock that another thread held at that moment stays locked
there forever, and state of the parent (its stream, its sockets, the values of its next row) must not be used
twice. Objects with such state register by `at_fork`.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    """An object that must be notified in a forked child."""

    def after_fork_in_child(self) -> None:
        """Reset state that must not be shared with the parent; called once in each child, in no order."""


_forked: weakref.WeakSet[Forked] = weakref.WeakSet()


def at_fork(thing: Forked) -> None:
    """Have `thing.after_fork_in_child()` called in forked children as long as `thing` is referenced."""
    _forked.add(thing)


def _after_fork_in_child() -> None:
    for thing in list(_forked):
        thing.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)


def renew_lock(lock: threading.Lock | threading.RLock) -> None:
    """Free, in a child, a lock that a thread of the parent may have held."""
    lock._at_fork_reinit()  # type: ignore[union-attr]  # noqa: SLF001 - as threading itself does
