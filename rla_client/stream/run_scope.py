"""Current run of each thread.

A `Scope` is the place of one run at a time. It holds what belongs to that run and is asked for without a
name: its clock, its logger, where its pictures go (each a `PerScope`). A thread's scope is

1. that of the block of `inside` which it is in;
2. its own: where it opened a run that is still open, the last one of several;
3. that of the process: where the main thread opened a run, else whoever opened one while none was open.

A thread that opened runs of its own, which are closed, falls back to the main thread's alone: another
thread's run is none of its business.

While all threads have the same scope, which is so in nearly every program, nobody pays for this: `changes`
tell who keeps a copy. A thread's end needs no call; a forked child keeps the scope of the thread that forked.
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
    """The place of one run at a time.

    Attributes:
        used: a run is open here, or about to be.
        thread: identity of the thread that opened it; 0 where none of this process did.
        before: the scope whose run is open all the while, and current again after this one's.
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
        """This one or, where its run has ended, the last before it whose run is open."""
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
        """This thread opens a run here."""
        self.used, self.thread, self.opened = True, threading.get_ident(), moment()
        self._opener = weakref.ref(threading.current_thread())
        task = _task()
        self._task = None if task is None else weakref.ref(task)

    def is_of_another_task(self) -> bool:
        """Whether a task of asyncio opened the run here, it is open, and another one runs now."""
        opener = None if self._task is None else self._task()
        return self.used and opener is not None and not opener.done() and opener is not _task()

    def is_left(self) -> bool:
        """Whether a run is open here whose thread has ended; another one may have its identity by now."""
        if not self.used or self._opener is None:
            return False
        opener = self._opener()
        return opener is None or not opener.is_alive()

    def is_anothers(self) -> bool:
        """Whether another thread than the main one opened the run here, and lives."""
        return not self.is_free() and self.thread != threading.main_thread().ident


class PerScope(Generic[T]):
    """Something that each scope has one of, made when it is first asked for."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    def __call__(self) -> T:
        """That of the current scope."""
        return self.of(current())

    def of(self, scope: Scope) -> T:
        """That of a scope."""
        found: T
        try:
            found = scope.parts[self]
        except KeyError:
            found = scope.parts.setdefault(self, self._make())
        return found

    def put(self, value: T, scope: Scope) -> None:
        """Replace that of a scope; who keeps a copy is told."""
        scope.parts[self] = value
        tell()


class _Thread:
    """Where a thread is that has opened a run, or is inside of a block."""

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
guesses: list[Callable[[], None]] = []  # called, once, where a thread without a run has that of another one
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
    """A number that is above all those before."""
    return next(_moments)


def current() -> Scope:
    """The scope of this thread."""
    return _of_thread() if _several else _process


def room() -> Scope:
    """Where this thread may open a run: its scope, or a new one if another thread's run is open there."""
    here = current()
    return here if here.is_free() else Scope()


def process() -> Scope:
    """That of all threads which have none of their own."""
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
    """Tell, where several runs are open."""
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
    if os.getpid() == _pid:  # not in a child being forked, where nobody would let go of the lock
        tell()


def take(scope: Scope) -> None:
    """A run is opened in `scope`, which becomes this thread's, and the process's unless another's is open."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        former = current().standing()
        if former is not scope and former.used and former.thread == threading.get_ident():
            before = None if former.before is None else former.before.standing()
            former.before = before if before is not None and before.used else None  # no chain of ended ones
            _take_out(scope, former)
            scope.before = former
        scope.open()
        _me().own = scope
        if _process.is_free() or threading.current_thread() is threading.main_thread():
            _process = scope
        tell()


def _take_out(scope: Scope, chain: Scope) -> None:
    """Where `scope`, whose run had ended, is one of those before `chain`, it is so no longer."""
    one: Scope | None = chain
    while one is not None:
        if one.before is scope:
            one.before = scope.before
        one = one.before


def return_to(scope: Scope) -> None:
    """This thread's scope, which another run has taken the place of, is its own again."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        if _process is _me().own:
            _process = scope
        _me().own = scope
        tell()


def retire(scope: Scope) -> None:
    """The run of `scope` has ended: what was current before it is so again."""
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
    """This thread's scope is that of the process again."""
    with _lock:
        _me().own = None
        tell()


def reset() -> None:
    """A new scope for all threads, as after import; what is open stays so."""
    global _process  # noqa: PLW0603 - there is one
    with _lock:
        _threads.clear()
        _local.me = None
        _process = Scope()
        tell()


@contextmanager
def inside(scope: Scope) -> Iterator[None]:
    """For the length of a block, `scope` is this thread's."""
    if current() is scope:
        yield
        return
    me = _me()
    former = me.inside
    try:  # a signal's handler may raise anywhere
        me.inside = scope
        tell()
        yield
    finally:
        me.inside = former
        tell()


@contextmanager
def opening() -> Iterator[None]:
    """For the length of a block, this thread opens a run, or joins one: that it has none yet is no guess."""
    former = getattr(_local, "opens", False)
    _local.opens = True
    try:
        yield
    finally:
        _local.opens = former


def tell() -> None:
    """Tell who keeps a copy."""
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
