"""Timer of named blocks of a training.

    with time_tracker("rollout"):        # or @time_tracker("rollout") on a function
        collect()
    time_tracker.log()                   # time_used/{total calls, …}/rollout in the next row

All of it may be used from several threads. A block that runs inside a block of the same name in the same
thread (recursion) counts as a call; its time is counted once. Times are of the monotonic clock, in seconds.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from rla_client.contract.errors import ArgumentError
from rla_client.contract.process.fork_hooks import at_fork, renew_lock
from rla_client.run.current_logger import get_current
from rla_client.run.record.run_logger import WAIT_PREFIX
from rla_client.stream import run_scope

if TYPE_CHECKING:
    from typing_extensions import Self


_P = ParamSpec("_P")
_R = TypeVar("_R")


class SingleTimeTracker(ContextDecorator):
    """Calls and seconds of one name; a context manager and a decorator."""

    def __init__(self, name: str = "untitled") -> None:
        self.name = name
        self.call_time = 0
        self.time_cost = 0.0
        self._lock = threading.Lock()
        self._begun = threading.local()
        at_fork(self)

    def after_fork_in_child(self) -> None:
        """Free the lock."""
        renew_lock(self._lock)

    def __enter__(self) -> Self:
        stack = self._stack()
        with self._lock:
            self.call_time += 1
        stack.append(time.perf_counter())
        return self

    def __exit__(self, *_error: object) -> None:
        now = time.perf_counter()
        stack = self._stack()
        start = stack.pop()
        if not stack:
            with self._lock:
                self.time_cost += now - start

    def _stack(self) -> list[float]:
        stack: list[float] | None = getattr(self._begun, "stack", None)
        if stack is None:
            stack = self._begun.stack = []
        return stack


class _Times:
    """What a run has measured."""

    def __init__(self) -> None:
        self.trackers: dict[str, SingleTimeTracker] = {}
        self.since = time.perf_counter()
        self.records: dict[str, float] = {}


_times = run_scope.PerScope(_Times)


class TimeTracker:
    """Time spent in named blocks, all together and as a share of the time since `clear()`; of each run."""

    @property
    def time_dict(self) -> dict[str, SingleTimeTracker]:
        """The trackers by name."""
        return _times().trackers

    def __call__(self, name: str) -> SingleTimeTracker:
        """The tracker of `name`: use it in a `with` statement or as a decorator."""
        return self.time_dict.get(name) or self.time_dict.setdefault(name, SingleTimeTracker(name))

    def clear(self) -> None:
        """Forget all names and begin to count anew, as a new experiment does."""
        times = _times()
        times.trackers, times.since = {}, time.perf_counter()

    def get_info(self) -> dict[str, float]:
        """`{"total calls/<name>": …, "total time cost/<name>": seconds, …}` of all names.

        `time cost per call` is in seconds; `time cost percentage` is a share between 0 and 1 (more
        when several threads spend time under one name).
        """
        passed = max(time.perf_counter() - _times().since, 1e-9)
        info: dict[str, float] = {}
        for name, tracker in list(self.time_dict.items()):
            calls, cost = tracker.call_time, tracker.time_cost
            info[f"total calls/{name}"] = calls
            info[f"total time cost/{name}"] = cost
            info[f"time cost per call/{name}"] = cost / max(calls, 1)
            info[f"time cost percentage/{name}"] = cost / passed
        return info

    def log(self, exclude_lst: list[str] | tuple[str, ...] = ("csv",)) -> None:
        """Record all of `get_info()` under `time_used/…` for the next row, by default not in the CSV."""
        current = get_current()
        for key, value in self.get_info().items():
            current.record(f"time_used/{key}", value, tuple(exclude_lst))


time_tracker = TimeTracker()


def open_time_tracker(name: str) -> SingleTimeTracker:
    """A context manager (or decorator) that measures a block; `log_time_tracker` records it."""
    return time_tracker(name)


def log_time_tracker() -> None:
    """Record what `open_time_tracker` measured (not in the CSV)."""
    time_tracker.log()


def time_record(name: str) -> None:
    """Begin to measure `name`, again where it was begun already."""
    _times().records[name] = time.perf_counter()


def time_record_end(name: str) -> float:
    """Record the seconds since `time_record(name)` as `time_used/<name>`, and return them.

    Raises:
        ArgumentError: it was not begun, or ended already.
    """
    now = time.perf_counter()
    start = _times().records.pop(name, None)
    if start is None:
        raise ArgumentError(f"time_record_end({name!r}) without time_record({name!r}) before it")
    get_current().record(f"time_used/{name}", now - start)
    return now - start


def clear_time() -> None:
    """Discard all measurements, as for a new experiment."""
    time_tracker.clear()
    _times().records.clear()


class ProfileKV:
    """`with ProfileKV(name):` adds the seconds of the block to `wait_<name>` of the next row."""

    def __init__(self, name: str) -> None:
        self.name = f"{WAIT_PREFIX}{name}"
        self._begun: list[float] = []

    def __enter__(self) -> Self:
        self._begun.append(time.perf_counter())
        return self

    def __exit__(self, *_error: object) -> None:
        get_current().add(self.name, time.perf_counter() - self._begun.pop())


def profile(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator: `ProfileKV(name)` around each call."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with ProfileKV(name):
                return function(*args, **kwargs)

        return call

    return decorate
