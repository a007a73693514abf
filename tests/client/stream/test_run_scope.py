"""What is current in each thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from rla_client.stream import run_scope
from rla_client.stream.clock import clock, time_step_holder
from rla_client.stream.run_scope import Scope

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    run_scope.reset()
    yield
    run_scope.reset()


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
    run_scope.take(found)
    return found


def test_a_run_of_the_main_thread_is_that_of_all_threads(workers: list[Worker]) -> None:
    main = opened()
    assert workers[0].do(run_scope.current) is run_scope.current() is run_scope.process() is main


def test_each_thread_that_opens_a_run_has_its_own(workers: list[Worker]) -> None:
    own = [worker.do(opened) for worker in workers]
    assert [worker.do(run_scope.current) for worker in workers] == own
    assert run_scope.current() is own[0], "who opened none writes into the process's"
    assert not run_scope.current().is_free()
    assert run_scope.current().is_anothers()
    main = opened()
    assert (run_scope.current(), run_scope.process()) == (main, main)
    assert [worker.do(run_scope.current) for worker in workers] == own


def test_a_thread_whose_run_has_ended_does_not_write_into_that_of_another(workers: list[Worker]) -> None:
    first, second, third = workers
    mine = first.do(opened)
    first.do(lambda: run_scope.retire(mine))
    theirs = second.do(opened)
    assert first.do(run_scope.current) is mine
    assert third.do(run_scope.current) is theirs, "this one has had none"
    second.do(lambda: run_scope.retire(theirs))
    main = opened()
    assert first.do(run_scope.current) is second.do(run_scope.current) is main, (
        "the script's own is everybody's"
    )


def test_the_only_run_that_is_left_is_the_process_s(workers: list[Worker]) -> None:
    own = [worker.do(opened) for worker in workers[:2]]
    assert workers[2].do(run_scope.current) is own[0]
    run_scope.retire(own[0])
    assert workers[2].do(run_scope.current) is own[1]


def test_the_run_before_is_current_again() -> None:
    outer = opened()
    inner = opened()
    innermost = opened()
    run_scope.retire(inner)
    assert run_scope.current() is innermost
    run_scope.retire(innermost)
    assert run_scope.current() is run_scope.process() is outer
    run_scope.retire(outer)
    assert run_scope.current() is outer, "what has ended is still looked at"
    later = opened()
    assert later.before is None, "nothing that has ended is kept alive"


def test_no_chain_of_ended_runs_is_kept() -> None:
    found = [opened()]
    for _ in range(5):
        found.append(opened())
        run_scope.retire(found[-2])
    opened()
    assert [one.before for one in found[-1:]] == [None]


def test_a_place_whose_run_is_opened_again_is_no_ring() -> None:
    outer, left, right = opened(), opened(), opened()
    for _ in range(3):
        run_scope.retire(left)
        run_scope.take(left)
        assert run_scope.current() is left
        run_scope.retire(right)
        run_scope.take(right)
        assert run_scope.current() is right
    run_scope.retire(right)
    assert run_scope.current() is left
    run_scope.retire(left)
    assert run_scope.current() is outer
    run_scope.retire(outer)
    assert not run_scope.current().used
    assert outer.opened < left.opened < right.opened < right.ended < left.ended < outer.ended


def test_inside_of_a_block(workers: list[Worker]) -> None:
    main, other = opened(), workers[0].do(opened)
    with run_scope.inside(other):
        assert run_scope.current() is other
        with run_scope.inside(main):
            assert run_scope.current() is main
        assert run_scope.current() is other
        assert workers[1].do(run_scope.current) is main
    assert run_scope.current() is main


def test_a_block_that_is_broken_off_on_the_way_in_changes_nothing(workers: list[Worker]) -> None:
    main, other = opened(), workers[0].do(opened)

    def interrupt(_: Scope | None) -> None:
        run_scope.changes.remove(interrupt)
        raise KeyboardInterrupt

    run_scope.changes.append(interrupt)
    with pytest.raises(KeyboardInterrupt), run_scope.inside(other):
        pass
    assert run_scope.current() is main


def test_each_run_has_its_clock(workers: list[Worker]) -> None:
    main = opened()
    time_step_holder.set_time(5)
    other = workers[0].do(opened)
    workers[0].do(lambda: time_step_holder.set_time(7))
    assert (time_step_holder.get_time(), workers[0].do(time_step_holder.get_time)) == (5, 7)
    assert (clock.of(main).get_time(), clock.of(other).get_time()) == (5, 7)
    with run_scope.inside(other):
        time_step_holder.add_time(1)
    assert (clock.of(main).get_time(), clock.of(other).get_time()) == (5, 8)


def test_nobody_pays_while_there_is_one_scope(workers: list[Worker]) -> None:
    told: list[Scope | None] = []
    run_scope.changes.append(told.append)
    try:
        main = opened()
        other = workers[0].do(opened)
        run_scope.retire(other)
        workers[0].end()
        run_scope.retire(main)
        last = opened()
        assert (told[0], told[-1]) == (main, last)
        assert None in told
    finally:
        run_scope.changes.remove(told.append)


def test_nobody_pays_once_the_runs_of_other_threads_have_ended(
    workers: list[Worker], wait_until: Callable[..., Any]
) -> None:
    told: list[Scope | None] = []
    main = opened()
    run_scope.changes.append(told.append)
    try:
        ended = workers[0].do(opened)
        workers[0].do(lambda: run_scope.retire(ended))
        assert told[-1] is main, "its thread lives, and writes into the main thread's"
        workers[1].do(opened)
        assert told[-1:] == [None]
        workers[1].end()
        wait_until(lambda: told[-1] is main, what="what nobody closed to end with its thread")
    finally:
        run_scope.changes.remove(told.append)


def test_the_end_of_a_thread_is_not_waited_for_in_a_child(
    workers: list[Worker], wait_until: Callable[..., Any]
) -> None:
    opened()
    workers[0].do(opened)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with run_scope._lock:
            held.set()
            go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    child = os.fork()
    if not child:
        os._exit(0 if run_scope.current() is run_scope.process() else 1)
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
            alone = run_scope.current() is run_scope.process() is own
            os._exit(0 if alone else 1)
        return os.waitpid(child, 0)[1]

    assert workers[0].do(fork) == 0


def test_a_thread_without_a_run_is_told_of_once(workers: list[Worker]) -> None:
    told: list[str] = []
    before = list(run_scope.guesses)
    run_scope.guesses[:] = [lambda: told.append("told")]
    try:
        for worker in workers[:2]:
            worker.do(opened)
        with_block = run_scope.opening()
        workers[2].do(with_block.__enter__)
        workers[2].do(run_scope.current)
        assert not told, "it is about to open one"
        workers[2].do(lambda: with_block.__exit__(None, None, None))
        workers[2].do(run_scope.current)
        workers[2].do(run_scope.current)
    finally:
        run_scope.guesses[:] = before
    assert told == ["told"]
