"""The end of runs that another one, a dropped handle or an ended thread leaves behind."""

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
    """A run is opened: it becomes the current one; what was so before is, where that fails."""
    data.enter()
    _opened[id(data)] = data
    try:
        yield
    except BaseException:
        if data.run is None:
            scopes.retire(data.scope)
        raise


_opened: weakref.WeakValueDictionary[int, RunData] = weakref.WeakValueDictionary()  # by identity
given_up: deque[RunData] = deque()  # other runs have taken the place of these, and nobody has their handles


def give_up(data: RunData) -> None:
    """Nobody has the handle of a run any more: if another one has taken its place, it ends soon.

    Not here: the garbage collector calls this, maybe in a thread that holds a lock.
    """
    data.is_held = False
    if data.gave_way:
        given_up.append(data)


def end_given_up() -> None:
    """End the runs that were given up, by a thread that holds no lock of a run."""
    while given_up:
        try:
            data = given_up.popleft()
        except IndexError:  # another thread ends it
            return
        if data.run is not None:
            end_run(data, "finished", "")
            data.scope.ended = data.gave_way  # another one has been in its place since then


def end_left() -> None:
    """End the runs that were given up, and those of threads that have ended, to which nobody can write."""
    end_given_up()
    for ref in _opened.valuerefs():  # at one blow: other threads open runs meanwhile
        data = ref()
        run = None if data is None else data.run
        if data is None or run is None or run.pid != os.getpid() or data.is_held:
            continue
        place = data.scope
        if place is not scopes.process() and place.is_left():
            end_run(data, "finished", "")


def end_run(data: RunData, status: str, reason: str) -> None:
    """Close the open run, if there is one, and let go of everything that was its own."""
    run = data.let_go()
    if run is None:
        return
    if "rla_client.media.recording_target" in sys.modules:
        sys.modules["rla_client.media.recording_target"].bind(None, data.scope)
    drop_current(run.logger, data.scope)
    run.close(status, reason)


def give_way(data: RunData) -> None:
    """Another run takes the place of the open one: it ends, unless somebody has its handle.

    Then it ends when that is given up.
    """
    data.gave_way = scopes.moment()
    if not data.is_held:
        end_run(data, "finished", "")
