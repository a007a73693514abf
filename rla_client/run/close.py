"""Closing of abandoned runs.

A run is abandoned when another one has replaced it, when its handle was dropped, or when its thread has
ended.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rla_client.run.current_logger import drop_current
from rla_client.run.run_data import RunData
from rla_client.stream import run_scope as scopes


@contextmanager
def entered(data: RunData) -> Iterator[None]:
    """Scope in which a run is opened and becomes current; where that fails, the former one is again."""
    data.enter()
    _opened[id(data)] = data
    try:
        yield
    except BaseException:
        if data.run is None:
            scopes.retire(data.scope)
        raise


_opened: weakref.WeakValueDictionary[int, RunData] = weakref.WeakValueDictionary()  # by identity
given_up: deque[RunData] = deque()  # runs that were replaced and whose handles were dropped


def give_up(data: RunData) -> None:
    """Note that a run's handle was dropped; if another run has replaced it, it is closed soon.

    It is not closed here, since the garbage collector calls this, maybe in a thread that holds a lock.
    """
    data.is_held = False
    if data.gave_way:
        given_up.append(data)


def end_given_up() -> None:
    """Close abandoned runs, in a thread that holds no lock of a run."""
    while given_up:
        try:
            data = given_up.popleft()
        except IndexError:  # another thread closes it
            return
        if data.run is not None:
            end_run(data, "finished", "")
            data.scope.ended = data.gave_way  # it was replaced since then


def end_left() -> None:
    """Close abandoned runs, and those of ended threads, to which nobody can write."""
    end_given_up()
    for ref in _opened.valuerefs():  # atomically: other threads open runs meanwhile
        data = ref()
        run = None if data is None else data.run
        if data is None or run is None or run.pid != os.getpid() or data.is_held:
            continue
        place = data.scope
        if place is not scopes.process() and place.is_left():
            end_run(data, "finished", "")


def end_run(data: RunData, status: str, reason: str) -> None:
    """Close the open run, if there is one, and release everything that belonged to it."""
    run = data.let_go()
    if run is None:
        return
    if "rla_client.media.recording_target" in sys.modules:
        sys.modules["rla_client.media.recording_target"].bind(None, data.scope)
    drop_current(run.logger, data.scope)
    run.close(status, reason)


def give_way(data: RunData) -> None:
    """Close the open run, which another one replaces, unless somebody has its handle.

    Then it is closed when the handle is dropped.
    """
    data.gave_way = scopes.moment()
    if not data.is_held:
        end_run(data, "finished", "")
