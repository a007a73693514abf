"""Current run of each thread.

A `Scope` has one run at a time, with everything of that run that functions without a run argument use: its
clock, its logger, the target of its pictures (each a `PerScope`). A thread's scope is

1. that of the block of `inside` which it is in;
2. its own: where it opened a run that is still open, the last one of several;
3. that of the process: where the main thread opened a run, else the thread that opened one while none was
   open.

A thread whose own runs are closed falls back to the main thread's run, and never to another thread's.

While all threads have the same scope, as in nearly every program, this costs nothing: `changes` notify the
holders of copies. A thread's end needs no call; a forked child keeps the scope of the thread that forked.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Scope:
    """Scope of one run at a time.

    Attributes:
        used: a run is open here, or about to be.
        thread: identity of the thread that opened it; 0 where none of this process did.
        before: the scope that is current again after this one's run.
        opened, ended: moments at which its run was opened and ended last; 0 before the first.
    """

    def __init__(self) -> None:
        self.parts: dict[PerScope[Any], Any] = {}
        self.used = False
        self.opened = self.ended = 0
        self.thread = 0
        self._opener: weakref.ref[threading.Thread] | None = None
        self._task: weakref.ref[asyncio.Task[Any]] | None = None  # of asyncio, which opened its run
        self.before: Scope | None = None

    def standing(self) -> Scope:
        """This one or, where its run has ended, the last scope before it with an open run."""
        found: Scope | None = self
        while found is not None and not found.used:
            found = found.before
        return found or self

    def is_free(self) -> bool:
        """Whether this thread may open a run here: no other living thread has one open."""
        if not self.used or self.thread in {0, threading.get_ident()}:
            return True
        return self.is_left()

    def open(self) -> None:
        """Note that this thread opens a run here."""
        self.used, self.thread, self.opened = True, threading.get_ident(), moment()
        self._opener = weakref.ref(threading.current_thread())
        task = _task()
        self._task = None if task is None else weakref.ref(task)

    def is_of_another_task(self) -> bool:
        """Whether another task of asyncio than the current one opened the open run here."""
        opener = None if self._task is None else self._task()
        return self.used and opener is not None and not opener.done() and opener is not _task()

    def is_left(self) -> bool:
        """Whether a run is open here whose thread has ended; another thread may have its identity by now."""
        if not self.used or self._opener is None:
            return False
        opener = self._opener()
        return opener is None or not opener.is_alive()

    def is_anothers(self) -> bool:
        """Whether a live thread other than the main one opened the run here."""
        return not self.is_free() and self.thread != threading.main_thread().ident


class PerScope(Generic[T]):
    """An object of which each scope has one, made at first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __call__(self) -> T:
        """The object of the current scope."""
        return self.of(current())

    def of(self, scope: Scope) -> T:
        """The object of a scope."""
        found: T
        try:
            found = scope.parts[self]
        except KeyError:
            found = scope.parts.setdefault(self, self._make())
        return found

    def put(self, value: T, scope: Scope) -> None:
        """Replace the object of a scope, and notify holders of copies."""
        scope.parts[self] = value
        tell()


class _Thread:
    """State of a thread that has opened a run, or is inside of a block."""

    def __init__(self) -> None:
        self.ident = threading.get_ident()
        self.own: Scope | None = None
        self.inside: Scope | None = None

    def current(self) -> Scope:
        """Its scope."""
        if self.inside is not None:
            return self.inside
        if self.own is None:
            return _process
        own = self.own = self.own.standing()
        falls_back = _process.used and _process.thread in {threading.main_thread().ident, self.ident}
        return _process if falls_back and not own.used else own


changes: list[Callable[[Scope | None], None]] = []  # get the scope of all threads; None: each has its own
guesses: list[Callable[[], None]] = []  # called once, where a thread without a run uses that of another one
_moments = itertools.count(1)
_local = threading.local()
_threads: weakref.WeakSet[_Thread] = weakref.WeakSet()
_lock = threading.RLock()
_process = Scope()
_several = False
_pid = os.getpid()


def _task() -> asyncio.Task[Any] | None:
    """The task of asyncio that runs in this thread."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio  # noqa: PLC0415 - not at import of the package

    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None


def moment() -> int:
    """A number above all earlier ones."""
    return next(_moments)


def current() -> Scope:
    """The scope of this thread."""
    return _of_thread() if _several else _process


def room() -> Scope:
    """A scope for a run of this thread: its own, or a new one if another thread's run is open there."""
    here = current()
    return here if here.is_free() else Scope()


def process() -> Scope:
    """The scope of all threads without their own."""
    return _process


def _of_thread() -> Scope:
    me: _Thread | None = getattr(_local, "me", None)
    runless = me is None or (me.own is None and me.inside is None)
    if runless and guesses and _process.used and not getattr(_local, "opens", False):
        main = threading.main_thread().ident
        if main not in {_process.thread, threading.get_ident()}:
            _guess()
    return _process if me is None else me.current()


def _guess() -> None:
    """Warn of an ambiguous current run, where several are open."""
    with _lock:
        if len({one.own for one in list(_threads) if one.own is not None and one.own.used}) < 2:  # noqa: PLR2004
            return
        calls = guesses[:]
        guesses.clear()
    for call in calls:
        call()


def _me() -> _Thread:
    me: _Thread | None = getattr(_local, "me", None)
    if me is None:
        me = _local.me = _Thread()
        with _lock:
            _threads.add(me)
        weakref.finalize(me, _end_of_thread).atexit = False
    return me


def _end_of_thread() -> None:
    if os.getpid() == _pid:  # not while forking a child, in which nobody would release the lock
        tell()


def take(scope: Scope) -> None:
    """Make `scope`, with a new run, this thread's, and the process's unless another run is open there."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        former = current().standing()
        if former is not scope and former.used and former.thread == threading.get_ident():
            before = None if former.before is None else former.before.standing()
            former.before = before if before is not None and before.used else None  # no chain of ended scopes
            _take_out(scope, former)
            scope.before = former
        scope.open()
        _me().own = scope
        if _process.is_free() or threading.current_thread() is threading.main_thread():
            _process = scope
        tell()


def _take_out(scope: Scope, chain: Scope) -> None:
    """Remove `scope`, whose run has ended, from the scopes before `chain`."""
    one: Scope | None = chain
    while one is not None:
        if one.before is scope:
            one.before = scope.before
        one = one.before


def return_to(scope: Scope) -> None:
    """Make a scope that another run has replaced this thread's own again."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        if _process is _me().own:
            _process = scope
        _me().own = scope
        tell()


def retire(scope: Scope) -> None:
    """Restore the former scopes after the run of `scope` has ended."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        scope.used, scope.ended = False, moment()
        if _process is scope:
            _process = scope.standing()
            others = {one.own.standing() for one in list(_threads) if one.own is not None}
            others = {one for one in others if one.used}
            if not _process.used and len(others) == 1:
                _process = others.pop()
        tell()


def forget_own() -> None:
    """Return this thread to the process's scope."""
    with _lock:
        _me().own = None
        tell()


def reset() -> None:
    """Begin a new scope for all threads, as after import; open runs stay open."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        _threads.clear()
        _local.me = None
        _process = Scope()
        tell()


@contextmanager
def inside(scope: Scope) -> Iterator[None]:
    """Context in which `scope` is this thread's."""
    if current() is scope:
        yield
        return
    me = _me()
    former = me.inside
    try:  # a signal handler may raise anywhere
        me.inside = scope
        tell()
        yield
    finally:
        me.inside = former
        tell()


@contextmanager
def opening() -> Iterator[None]:
    """Context in which this thread opens or joins a run, without a warning that it has none yet."""
    former = getattr(_local, "opens", False)
    _local.opens = True
    try:
        yield
    finally:
        _local.opens = former


def tell() -> None:
    """Notify holders of copies."""
    global _several  # noqa: PLW0603 - of the process
    with _lock:
        _several = any(one.current() is not _process for one in list(_threads))
        one = None if _several else _process
        for take_over in changes:
            take_over(one)


def _after_fork_in_child() -> None:
    global _process, _lock, _pid  # noqa: PLW0603 - of the child
    _lock, _pid = threading.RLock(), os.getpid()
    _process = current()
    if _process.thread:
        _process.thread = threading.get_ident()
    _threads.clear()
    _local.me = None
    tell()


os.register_at_fork(after_in_child=_after_fork_in_child)
