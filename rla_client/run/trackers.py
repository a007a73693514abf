"""Where time and memory go: time tracker, time records, `ProfileKV`, large variables.

    with time_tracker("rollout"):        # or @time_tracker("rollout") on a function
        collect()
    time_tracker.log()                   # time_used/{total calls, …}/rollout in the next row

All of it may be used from several threads. A block that runs inside a block of the same name in
the same thread (recursion) counts as a call; its time is counted once. Times are of the monotonic
clock, in seconds.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rla_client.contract.errors import ArgumentError, MissingExtraError
from rla_client.contract.process.fork_hooks import at_fork, renew_lock
from rla_client.run.recording import WAIT_PREFIX
from rla_client.run.run import get_current, info, warn
from rla_client.stream import scope

if TYPE_CHECKING:
    from typing_extensions import Self

LARGE_MEMORY_TAG = "large_memory"
MIN_LARGE_BYTES = 1 << 20  # of a variable worth telling about
MAX_LARGE_VARIABLES = 10
SAMPLED_ITEMS = 1000  # of a longer container as many are measured, and the rest reckoned from them
MAX_SIZE_DEPTH = 8

_P = ParamSpec("_P")
_R = TypeVar("_R")


# -- time --------------------------------------------------------------------------------------


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


_times = scope.Part(_Times)


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
    """Begin to measure `name`; begun already, it begins again."""
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
    """Forget all that was measured: a new experiment starts afresh."""
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


# -- memory ------------------------------------------------------------------------------------


def print_large_memory_variable(write: Callable[[str], object] = print, *, depth: int = 1) -> dict[str, str]:
    """Write one line for each of the largest local and global variables, the largest first.

    Args:
        write: takes a line of text, for example `logger.info`.
        depth: whose variables: 1 for those of the direct caller; a wrapper passes 2.

    Returns:
        Name → size as text, as written.
    """
    frame = sys._getframe(depth)  # noqa: SLF001 - what inspect.currentframe() calls, without the import
    outer = {name: value for name, value in frame.f_globals.items() if name not in frame.f_locals}
    told = {}
    for name, size in large_variables({**frame.f_locals, **outer}):
        told[name] = size_text(size)
        write(f"{name:>30}: {told[name]:>8}")
    return told


def large_variables(namespace: Mapping[str, object]) -> list[tuple[str, int]]:
    """Name and bytes of the at most MAX_LARGE_VARIABLES largest objects, the largest first.

    What is below MIN_LARGE_BYTES is left out. Arrays and tensors count with their data (also on a GPU),
    containers and objects with what they hold. What several of them hold counts for each; an object with
    several names has its first.
    """
    sizes = []
    known: set[int] = set()
    for name, value in list(namespace.items()):
        if not name.startswith("__") and id(value) not in known:
            known.add(id(value))
            sizes.append((name, int(_size(value, set(), 0))))
    sizes.sort(key=lambda pair: -pair[1])
    return [pair for pair in sizes[:MAX_LARGE_VARIABLES] if pair[1] >= MIN_LARGE_BYTES]


def size_text(size: float) -> str:
    """Bytes as text with one decimal: `3.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:  # noqa: PLR2004
            return f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


_NOT_COUNTED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def _size(value: object, seen: set[int], depth: int) -> float:
    """Bytes of `value` and all it holds, without what was seen already."""
    if isinstance(value, _NOT_COUNTED) or id(value) in seen:
        return 0
    seen.add(id(value))
    try:
        data = _data_bytes(value, seen)
        if data is not None:
            return data
        own = sys.getsizeof(value)
        return own + _held_size(value, seen, depth + 1) if depth < MAX_SIZE_DEPTH else own
    except Exception:  # noqa: BLE001 - foreign __getattr__, __len__, …; what cannot be measured is 0
        return 0


def _data_bytes(value: Any, seen: set[int]) -> int | None:  # noqa: ANN401
    """Bytes of an array's, tensor's or data frame's data; None for anything else."""
    if hasattr(value, "untyped_storage"):
        storage = value.untyped_storage()
        key = hash(("storage", storage.data_ptr()))
        if key in seen and storage.data_ptr():
            return 0
        seen.add(key)
        return int(storage.nbytes())
    if hasattr(value, "memory_usage"):
        usage = value.memory_usage(deep=False)
        return int(getattr(usage, "sum", lambda: usage)())
    if not isinstance(getattr(value, "nbytes", None), int):
        return None
    base = getattr(value, "base", None)
    if base is not None and hasattr(base, "nbytes"):
        return int(_size(base, seen, MAX_SIZE_DEPTH))  # a view keeps all of its base alive
    return int(value.nbytes)


def _held_size(value: object, seen: set[int], depth: int) -> float:
    if isinstance(value, str | bytes | bytearray | int | float | complex):
        return 0
    if isinstance(value, Mapping):
        return _sampled(value.keys(), seen, depth) + _sampled(value.values(), seen, depth)
    if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ == "deque":
        return _sampled(value, seen, depth)
    held = getattr(value, "__dict__", None)
    return _size(held, seen, depth) if isinstance(held, dict) else 0


def _sampled(items: Any, seen: set[int], depth: int) -> float:  # noqa: ANN401
    count = len(items)
    if count <= SAMPLED_ITEMS:
        return sum(_size(item, seen, depth) for item in list(items))
    measured = sum(_size(item, seen, depth) for _, item in zip(range(SAMPLED_ITEMS), items, strict=False))
    return measured * count / SAMPLED_ITEMS


def tell_large_memory_variables(depth: int) -> dict[str, str]:
    """Log the largest variables that a caller sees (over 1 MiB, with what they hold): name → size.

    They also become the text `large_memory` in TensorBoard, where that is an output.

    Args:
        depth: whose variables: 2 for those of the caller, 3 for those of its caller.
    """
    told = print_large_memory_variable(info, depth=depth)
    current = get_current()
    if told and "tensorboard" in current.sinks:
        table = "".join(f"| {name} | {size} |\n" for name, size in told.items())
        try:
            from rla_client.run.tensorboard import tbx_writer  # noqa: PLC0415 - tensorboardX is slow to import
        except MissingExtraError as error:
            warn(f"no table of large variables in TensorBoard: {error}")
            return told
        tbx_writer(current).add_text(LARGE_MEMORY_TAG, f"| variable | size |\n| --- | --- |\n{table}")
    return told
