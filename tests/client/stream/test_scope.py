"""What is current in each thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from rla_client.stream import scope
from rla_client.stream.clock import clock, time_step_holder
from rla_client.stream.scope import Scope

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    scope.reset()
    yield
    scope.reset()


class Worker:
    """A thread that does what it is told."""

    def __init__(self) -> None:
        self._go, self._done, self._ends = threading.Event(), threading.Event(), False
        self._call: Callable[[], object] = lambda: None
        self._found: object = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while self._go.wait(30) and not self._ends:
            self._go.clear()
            self._found = self._call()
            self._done.set()

    def do(self, call: Callable[[], T]) -> T:
        """What the call gives there."""
        self._call = call
        self._done.clear()
        self._go.set()
        assert self._done.wait(30)
        return self._found  # type: ignore[return-value]

    def end(self) -> None:
        """End the thread."""
        self._ends = True
        self._go.set()
        self._thread.join(30)


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    made = [Worker(), Worker(), Worker()]
    yield made
    for worker in made:
        worker.end()


def opened() -> Scope:
    """Open a run as `init` does."""
    found = Scope()
    scope.take(found)
    return found


def test_a_run_of_the_main_thread_is_that_of_all_threads(workers: list[Worker]) -> None:
    main = opened()
    assert workers[0].do(scope.current) is scope.current() is scope.process() is main


def test_each_thread_that_opens_a_run_has_its_own(workers: list[Worker]) -> None:
    own = [worker.do(opened) for worker in workers]
    assert [worker.do(scope.current) for worker in workers] == own
    assert scope.current() is own[0], "who opened none writes into the process's"
    assert not scope.current().is_free()
    assert scope.current().is_anothers()
    main = opened()
    assert (scope.current(), scope.process()) == (main, main)
    assert [worker.do(scope.current) for worker in workers] == own


def test_a_thread_whose_run_has_ended_does_not_write_into_that_of_another(workers: list[Worker]) -> None:
    first, second, third = workers
    mine = first.do(opened)
    first.do(lambda: scope.retire(mine))
    theirs = second.do(opened)
    assert first.do(scope.current) is mine
    assert third.do(scope.current) is theirs, "this one has had none"
    second.do(lambda: scope.retire(theirs))
    main = opened()
    assert first.do(scope.current) is second.do(scope.current) is main, "the script's own is everybody's"


def test_the_only_run_that_is_left_is_the_process_s(workers: list[Worker]) -> None:
    own = [worker.do(opened) for worker in workers[:2]]
    assert workers[2].do(scope.current) is own[0]
    scope.retire(own[0])
    assert workers[2].do(scope.current) is own[1]


def test_the_run_before_is_current_again() -> None:
    outer = opened()
    inner = opened()
    innermost = opened()
    scope.retire(inner)
    assert scope.current() is innermost
    scope.retire(innermost)
    assert scope.current() is scope.process() is outer
    scope.retire(outer)
    assert scope.current() is outer, "what has ended is still looked at"
    later = opened()
    assert later.before is None, "nothing that has ended is kept alive"


def test_no_chain_of_ended_runs_is_kept() -> None:
    found = [opened()]
    for _ in range(5):
        found.append(opened())
        scope.retire(found[-2])
    opened()
    assert [one.before for one in found[-1:]] == [None]


def test_a_place_whose_run_is_opened_again_is_no_ring() -> None:
    outer, left, right = opened(), opened(), opened()
    for _ in range(3):
        scope.retire(left)
        scope.take(left)
        assert scope.current() is left
        scope.retire(right)
        scope.take(right)
        assert scope.current() is right
    scope.retire(right)
    assert scope.current() is left
    scope.retire(left)
    assert scope.current() is outer
    scope.retire(outer)
    assert not scope.current().used
    assert outer.opened < left.opened < right.opened < right.ended < left.ended < outer.ended


def test_inside_of_a_block(workers: list[Worker]) -> None:
    main, other = opened(), workers[0].do(opened)
    with scope.inside(other):
        assert scope.current() is other
        with scope.inside(main):
            assert scope.current() is main
        assert scope.current() is other
        assert workers[1].do(scope.current) is main
    assert scope.current() is main


def test_a_block_that_is_broken_off_on_the_way_in_changes_nothing(workers: list[Worker]) -> None:
    main, other = opened(), workers[0].do(opened)

    def interrupt(_: Scope | None) -> None:
        scope.changes.remove(interrupt)
        raise KeyboardInterrupt

    scope.changes.append(interrupt)
    with pytest.raises(KeyboardInterrupt), scope.inside(other):
        pass
    assert scope.current() is main


def test_each_run_has_its_clock(workers: list[Worker]) -> None:
    main = opened()
    time_step_holder.set_time(5)
    other = workers[0].do(opened)
    workers[0].do(lambda: time_step_holder.set_time(7))
    assert (time_step_holder.get_time(), workers[0].do(time_step_holder.get_time)) == (5, 7)
    assert (clock.of(main).get_time(), clock.of(other).get_time()) == (5, 7)
    with scope.inside(other):
        time_step_holder.add_time(1)
    assert (clock.of(main).get_time(), clock.of(other).get_time()) == (5, 8)


def test_nobody_pays_while_there_is_one_scope(workers: list[Worker]) -> None:
    told: list[Scope | None] = []
    scope.changes.append(told.append)
    try:
        main = opened()
        other = workers[0].do(opened)
        scope.retire(other)
        workers[0].end()
        scope.retire(main)
        last = opened()
        assert (told[0], told[-1]) == (main, last)
        assert None in told
    finally:
        scope.changes.remove(told.append)


def test_nobody_pays_once_the_runs_of_other_threads_have_ended(
    workers: list[Worker], wait_until: Callable[..., Any]
) -> None:
    told: list[Scope | None] = []
    main = opened()
    scope.changes.append(told.append)
    try:
        ended = workers[0].do(opened)
        workers[0].do(lambda: scope.retire(ended))
        assert told[-1] is main, "its thread lives, and writes into the main thread's"
        workers[1].do(opened)
        assert told[-1:] == [None]
        workers[1].end()
        wait_until(lambda: told[-1] is main, what="what nobody closed to end with its thread")
    finally:
        scope.changes.remove(told.append)


def test_the_end_of_a_thread_is_not_waited_for_in_a_child(
    workers: list[Worker], wait_until: Callable[..., Any]
) -> None:
    opened()
    workers[0].do(opened)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with scope._lock:
            held.set()
            go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    child = os.fork()
    if not child:
        os._exit(0 if scope.current() is scope.process() else 1)
    go.set()
    holder.join(30)
    try:
        wait_until(lambda: os.waitpid(child, os.WNOHANG) == (child, 0), what="the child's end")
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise


def test_a_forked_child_goes_on_in_the_scope_of_the_thread_that_forked(workers: list[Worker]) -> None:
    opened()
    own = workers[0].do(opened)

    def fork() -> int:
        child = os.fork()
        if not child:
            alone = scope.current() is scope.process() is own
            os._exit(0 if alone else 1)
        return os.waitpid(child, 0)[1]

    assert workers[0].do(fork) == 0


def test_a_thread_without_a_run_is_told_of_once(workers: list[Worker]) -> None:
    told: list[str] = []
    before = list(scope.guesses)
    scope.guesses[:] = [lambda: told.append("told")]
    try:
        for worker in workers[:2]:
            worker.do(opened)
        with_block = scope.opening()
        workers[2].do(with_block.__enter__)
        workers[2].do(scope.current)
        assert not told, "it is about to open one"
        workers[2].do(lambda: with_block.__exit__(None, None, None))
        workers[2].do(scope.current)
        workers[2].do(scope.current)
    finally:
        scope.guesses[:] = before
    assert told == ["told"]
